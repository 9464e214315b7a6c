-- The first caller until the key lapses.
-- KEYS   1 key
-- ARGV   1 token: the same is the same call, sent again  2 channel of the events  3 per, ms
-- reply  1 the first   0 not

if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return 1 end
return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0
