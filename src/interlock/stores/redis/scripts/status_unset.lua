-- Take a status away, unless it is the progress of a lease.
-- KEYS   1 status  2 details  3 followed
-- ARGV   1 key  2 channel of the events
-- reply  {1} it is gone   {0, details} it is a lease's

local STATUS, DETAILS, FOLLOWED, SCOPE, EVENTS = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local call, format = redis.call, string.format
local found = call('MGET', DETAILS, FOLLOWED)
local details, followed = found[1], found[2]

--#include _tell

if details and string.find(details, '^{"lock_id":"') then return { 0, details } end
if call('DEL', STATUS, DETAILS) > 0 then tell('progress') end
return { 1 }
