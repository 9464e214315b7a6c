-- How much is used of a window, if it is the current one. Its key has no more than its number. Where Interlock has
-- counted, the key expires with the window, which tells how long that is. n8n's own keys expire `per` after
-- their first call: then it is the one whole number of seconds for which this number is the current one.
-- ARGV   8 the window's number
-- reply  {used, per in ms, when all of it is free again}

--#include _ask

local LONGEST = 8 * 3600 * 1000  -- of n8n's: in longer ones several numbers of seconds may fit
local number, counter = tonumber(ARGV[8]), USED .. ARGV[8]
local used, ms = tonumber(call('GET', counter)) or 0, floor(now / 1000)
local ends = ms + call('PTTL', counter)
local length = floor(ends / (number + 1) + 0.5)
if math.abs(length * (number + 1) - ends) > 5 then
  length = number > 0 and floor(ms / number / 1000) * 1000 or 0
  if length > LONGEST then return { 0, 0, 0 } end
end
if ms < number * length or ms >= (number + 1) * length then return { 0, 0, 0 } end
return { used, length, (number + 1) * length * 1000 }
