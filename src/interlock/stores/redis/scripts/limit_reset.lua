-- Forget what was let through. ARGV as for a limit.

--#include _ask
--#include _limit
--#include _windows

local there = call('DEL', USED, VACANT)
local latest = max(window, tonumber(call('GET', AHEAD)) or 0)
for number = window, latest do there = there + call('DEL', counter_of(number)) end
call('DEL', AHEAD)
return there > 0 and 1 or 0
