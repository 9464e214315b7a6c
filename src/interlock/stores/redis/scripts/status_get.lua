-- KEYS   1 status  2 details
-- reply  {value, details, ms left}

local found = redis.call('MGET', KEYS[1], KEYS[2])
return { found[1], found[2], redis.call('PTTL', KEYS[1]) }
