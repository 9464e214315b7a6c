-- Take the scope, claim an offer, or keep a place in the queue. Safe to send again.
-- ARGV   8 lock_id  9 opening of its sidecar  10 identity  11 ttl ms  12 permits
--        13 client that waits, '' to fail fast, '?' to be told which place there is  14 place, 0 for a new one
-- reply  {1, fence, locked_at, count}                           granted
--        {0, count, holder, holder's ms left, place}            held, not queued
--        {2, count, holder, holder's ms left, place, look_in, head, forgotten}   queued

local id, opening, identity = ARGV[8], ARGV[9], ARGV[10]
local ttl, permits, client, place = tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[13], tonumber(ARGV[14])

local waits = client ~= '' and client ~= '?'

--#include _state
--#include _grant

if not counter and not meta and others == 0 and permits == 1 and not followed then
  return grant_alone(id, identity, ttl, ttl, '')
end

--#include _crowd
--#include _claim

local again = claim(id, opening, ttl)
if again then return again end

if (others == 0 or call('EXISTS', QUEUE) == 0) and admits(permits) then
  return grant(id, identity, ttl, permits, ttl, '')
end

local kept, forgotten = place > 0, 0
if not kept then
  local tail = call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')
  place = max(clock[1] * 1000000 + clock[2], (tonumber(tail[2]) or 0) + 1)
end
if waits then
  local added = call('ZADD', QUEUE, 'NX', format('%.0f', place), id)
  if added == 0 then
    place = tonumber(call('ZSCORE', QUEUE, id))
  else
    forgotten = kept and 1 or 0
    tell('queued', identity)
  end
  put_on_list(identity, id, 12 * WINDOW)
  call('HSET', WAITERS, id, format('%s %d %d %s', client, ttl, permits, identity))
  call('ZADD', SEEN, now, client)
  call('ZREMRANGEBYSCORE', SEEN, '-inf', now - 2 * WINDOW)
  for _, key in ipairs({ QUEUE, WAITERS, SEEN }) do call('PEXPIRE', key, 12 * WINDOW) end
end

local granted = hand_over(waits and id or nil)
if granted then return granted end

if not waits and call('EXISTS', QUEUE) == 0 and admits(permits) then
  return grant(id, identity, ttl, permits, ttl, '')  -- all who waited were dead
end

-- A contender with a shorter ttl may have cut the counter; the sidecar is the truth.
if meta and not is_shared(meta) and string.find(meta, '"fence":', 1, true) then
  local left = call('PTTL', META)
  if left > 0 and call('PTTL', COUNTER) < left then call('SET', COUNTER, counter or '1', 'PX', left) end
elseif crowd > 0 then
  mirror()
end

local count, holder, left = tonumber(counter) or max(crowd, 1), meta or '', ends_in or -1
place = format('%.0f', place)
if not waits then
  if client == '' then tell('denied', identity) end
  return { 0, count, holder, left, place }
end

local head = call('ZRANGE', QUEUE, 0, 0)[1] == id
local look_in = WINDOW
local offered = meta and string.find(meta, OFFERED, 1, true)
if ends_in and (head or offered) then look_in = min(WINDOW, ends_in + 1) end
return { 2, count, holder, left, place, look_in, head and 1 or 0, forgotten }
