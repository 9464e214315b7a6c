-- The server's time, and how a record writes it.

local clock = call('TIME')

local function iso_time()
  local seconds = tonumber(clock[1])
  local days = floor(seconds / 86400) + 719468
  local rest = seconds % 86400
  -- A civil date from a count of days, in years that begin in March.
  local era = floor(days / 146097)
  local doe = days - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local march = floor((5 * doy + 2) / 153)
  local month = march < 10 and march + 3 or march - 9
  return format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', yoe + era * 400 + (month <= 2 and 1 or 0), month,
    doy - floor((153 * march + 2) / 5) + 1, floor(rest / 3600), floor(rest / 60) % 60, rest % 60,
    floor(clock[2] / 1000))
end
