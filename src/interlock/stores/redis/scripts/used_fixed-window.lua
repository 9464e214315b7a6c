-- How much is used of a window, if it is the current one. Its key has no more than its number. Where Interlock has
-- counted, the key expires with the window, which tells how long that is. n8n's own keys expire `per` after
-- their first call: then it is the one whole number of seconds for which this number is the current one.
-- ARGV   8 the window's number
-- reply  {used, per in ms, when all of it is free again}

--#include _ask

local LONGEST = 8 * 3600000  -- of n8n's: in longer ones several numbers of seconds may fit
local number, counter, ms = tonumber(ARGV[8]), USED .. ARGV[8], floor(now / 1000)
local used, expires, blur = tonumber(call('GET', counter)) or 0, redis.pcall('PEXPIRETIME', counter), 0
if type(expires) ~= 'number' then  -- before 7.0; the two clocks are read one after the other
  expires, blur = ms + call('PTTL', counter), 50
end

local function is_current(length)
  return ms >= number * length and ms < (number + 1) * length
end

local length = floor(expires / (number + 1) + 0.5)
local is_ours = expires > ms and length <= 366 * 86400000 and math.abs(length * (number + 1) - expires) <= blur
if not is_ours then length = min(floor(ms / max(1, number) / 1000) * 1000, LONGEST) end
if not is_current(length) then return { 0, 0, 0 } end
return { used, length, (number + 1) * length * 1000 }
