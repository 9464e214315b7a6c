-- How full a bucket is. A clock that was set back only stops it from emptying until it is written again.

local unit = per / limit  -- µs that one takes to run out
local level = 0
local stands = call('GET', USED)
if stands then
  local was, at = struct.unpack('<dd', stands)
  level = max(0, was - max(0, now - at) / unit)
end

local function full(level)
  return now + ceil(level * unit)
end

local function keep(level)
  call('SET', USED, struct.pack('<dd', level, now), 'PX', format('%.0f', ceil(level * unit / 1000) + 1))
end
