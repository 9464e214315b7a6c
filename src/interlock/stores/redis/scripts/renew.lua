-- Prolong a lease that is still held.
-- ARGV   8 lock_id  9 opening of its sidecar  10 ttl ms  11 fence, 0 if unknown
-- reply  {1} renewed   {0} it is gone   {0, holder, ms left} somebody else has it

--#include _state
--#include _grant
--#include _crowd

local id, opening, ttl, fence = ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11]

local held = crowd > 0 and call('HGET', HOLDERS, id)
if not held and not (meta and not is_shared(meta) and is_mine(meta, id, opening)) then
  if fence ~= '0' then tell('lost', nil, { fence = fence, lock_id = id }) end
  if meta then return { 0, meta, call('PTTL', META) } end
  return { 0 }
end

local ends_in = ttl
if held then
  call('ZADD', PERMITS, now + ttl, id)
  ends_in = call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')[2] - now
end

-- Said before the mirror shows it: the invalidations that follow then tell the waiter nothing new.
if others > 0 then
  local waiting, client = first_living()
  if waiting then wake(client, 'renewed', SCOPE, format('%d', ends_in)) end
end

if held then
  mirror()
else
  call('PEXPIRE', META, ttl)
  -- A contender's EXPIRE may have ended the counter.
  if call('PEXPIRE', COUNTER, ttl) == 0 then call('SET', COUNTER, '1', 'PX', ttl) end
end
remember('L', ttl + DAY)
put_on_list(held or meta, id, ttl)
prolong_progress(id, opening, ttl)
return { 1 }
