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
--       9 status   process_status_<scope>   the holder's progress, a plain string
--      10 details  JSON: the same value, percent, message, and who wrote it
--      11 followed stands while somebody follows the events
-- ARGV  1 scope  2 prefix of the wake channels  3 liveness window in ms  4 grace for orphans in ms
--       5 channel of the events  6, 7 what stands before and after an execution's id in its set's key

local COUNTER, META, MEMO, QUEUE, PERMITS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[7]
local STATUS, DETAILS, FOLLOWED, SCOPE, EVENTS = KEYS[9], KEYS[10], KEYS[11], ARGV[1], ARGV[5]
local call, floor, format = redis.call, math.floor, string.format
local HOUR, DAY = 3600000, 86400000

local found = call('MGET', COUNTER, META, MEMO, FOLLOWED)
local counter, meta, memo, followed = found[1], found[2], found[3], found[4]
-- One EXISTS tells the common case, nobody waits, nobody shares and nothing is shown, from all others.
local others = call('EXISTS', QUEUE, PERMITS, DETAILS)

--#include _tell

-- `opening` is how a sidecar of ours with that lock_id begins: it saves the decoding.
local function is_mine(record, id, opening)
  if string.sub(record, 1, #opening) == opening then return true end
  local ok, fields = pcall(cjson.decode, record)
  return ok and type(fields) == 'table' and fields.lock_id == id
end

-- The execution that a record names. One with a backslash in it is read the slow way.
local function execution_of(record)
  if string.find(record, '"execution_id":null', 1, true) then return nil end
  local id = string.match(record, '"execution_id":"([^"\\]+)"')
  if id then return id end
  local ok, fields = pcall(cjson.decode, record)
  id = ok and type(fields) == 'table' and fields.execution_id
  if type(id) == 'number' then return format('%.0f', id) end
  return type(id) == 'string' and id or nil
end

local function execution_key(id)
  return ARGV[6] .. id .. ARGV[7]
end

local function strike_from_list(record, id)
  local execution = execution_of(record)
  if execution then call('ZREM', execution_key(execution), id .. '\n' .. SCOPE) end
end

local function fence_in_memo()
  return memo and string.match(memo, '^%a (%d+)') or '0'
end

local function released_in_memo()
  return memo and string.match(memo, '^%a %d+ (%d+)') or '0'
end
