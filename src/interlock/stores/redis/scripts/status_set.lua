-- Write a status, unless it is the progress of a lease.
-- KEYS   1 status  2 details  3 followed
-- ARGV   1 key  2 channel of the events  3 value  4 details, a JSON object without its end  5 ttl ms
-- reply  {1} written   {0, details} it is a lease's

local STATUS, DETAILS, FOLLOWED, SCOPE, EVENTS = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local call, floor, format = redis.call, math.floor, string.format
local found = call('MGET', DETAILS, FOLLOWED)
local details, followed = found[1], found[2]

--#include _tell
--#include _clock
--#include _show_status

if details and string.find(details, '^{"lock_id":"') then return { 0, details } end
show_status(ARGV[3], ARGV[4], tonumber(ARGV[5]))
return { 1 }
