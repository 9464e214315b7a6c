-- How a lease begins. Fences come from a clock that only goes forward, so that they grow although nobody
-- keeps them for ever; that of the last hour is in the memo, should the clock be set back.

local clock = call('TIME')

local function locked_at()
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

local function new_record(identity, note)
  local fence = format('%.0f', math.max(fence_in_memo() + 1, clock[1] * 1000000 + clock[2]))
  local at = locked_at()
  return string.sub(identity, 1, -2) .. ',"locked_at":"' .. at .. '","fence":' .. fence .. note .. '}', fence, at
end

local function grant_alone(identity, ttl, hold, note)
  local record, fence, at = new_record(identity, note)
  call('SET', COUNTER, 1, 'PX', hold)
  call('SET', META, record, 'PX', hold)
  memo = 'L ' .. fence .. ' ' .. released_in_memo()
  call('SET', MEMO, memo, 'PX', format('%.0f', ttl + DAY))
  counter, meta = '1', record
  return { 1, tonumber(fence), at, 1 }
end
