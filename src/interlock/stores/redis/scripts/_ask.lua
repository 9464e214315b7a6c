-- What every question to a limit needs. Kept small: it runs at every call.
-- Times are microseconds by the server's clock.
--
-- KEYS  1 what is used   2 vacant: zset '<cost> <n>' -> moment, of what was booked and given back
--       3 followed       4 ahead: the last window that was booked (fixed windows)
-- ARGV  1 scope  2 channel of the events  3 limit  4 per, ms  5 cost  6 burst
--       7 patience: how many ms ahead it may be booked; 0 for now or never, -1 to change nothing
-- reply {allowed, used, remaining, µs until then, when all of it is free again, the moment that was booked}

local USED, VACANT, FOLLOWED, AHEAD, SCOPE, EVENTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2]
local limit, per, cost, burst = tonumber(ARGV[3]), tonumber(ARGV[4]) * 1000, tonumber(ARGV[5]), tonumber(ARGV[6])
local patience = tonumber(ARGV[7]) * 1000
local call, format, floor, ceil, min, max = redis.call, string.format, math.floor, math.ceil, math.min, math.max
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local looks_only = patience < 0
