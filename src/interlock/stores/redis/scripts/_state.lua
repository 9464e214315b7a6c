-- What every script knows of one scope, and what suffices for a lock that nobody else wants. Kept small:
-- it runs at every call.
--
-- KEYS  1 counter  n8n-lock-<scope>       integer; whoever made it 1 holds the lock (n8n's rule)
--       2 sidecar  n8n-lock-<scope>:meta  JSON of the holder: the truth, of which the counter is a mirror
--       3 memo     '<state> <last fence> <last released fence> [<orphan>]'; state L leased, F released,
--                  B broken, O orphan seen: '<due> <until> <its count> <its end>'
--       4 queue    zset: lock_id -> place, first come first
--       5 waiters  hash: lock_id -> '<client> <ttl> <permits> <identity>'
--       6 seen     zset: client -> when it was last heard of
--       7 permits  zset: lock_id -> end of its lease        (only for scopes of more than one permit)
--       8 holders  hash: lock_id -> JSON of that holder     (likewise)
-- ARGV  1 scope  2 prefix of the wake channels  3 liveness window in ms  4 grace for orphans in ms

local COUNTER, META, MEMO, QUEUE, PERMITS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[7]
local call, floor, format = redis.call, math.floor, string.format
local HOUR, DAY = 3600000, 86400000

local found = call('MGET', COUNTER, META, MEMO)
local counter, meta, memo = found[1], found[2], found[3]
-- One EXISTS tells the common case, nobody waits and nobody shares, from all others.
local others = call('EXISTS', QUEUE, PERMITS)

-- `opening` is how a sidecar of ours with that lock_id begins: it saves the decoding.
local function is_mine(record, id, opening)
  if string.sub(record, 1, #opening) == opening then return true end
  local ok, fields = pcall(cjson.decode, record)
  return ok and type(fields) == 'table' and fields.lock_id == id
end

local function fence_in_memo()
  return memo and string.match(memo, '^%a (%d+)') or '0'
end

local function released_in_memo()
  return memo and string.match(memo, '^%a %d+ (%d+)') or '0'
end
