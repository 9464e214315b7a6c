-- Give back a lease, an offer or a place in the queue. Ownership is checked and acted on in one step.
-- ARGV   8 lock_id  9 opening of its sidecar  10 fence, 0 if unknown  11 only what this execution has, '' for any
-- reply  {1} released   {0} there was nothing to release   {0, holder, ms left} somebody else has it

local id, opening, fence, execution = ARGV[8], ARGV[9], ARGV[10], ARGV[11]

--#include _state

local function is_meant(record)
  return record and (execution == '' or execution_of(record) == execution)
end

local function holds_alone()
  return meta and is_mine(meta, id, opening) and is_meant(meta)
end

local function free()
  local last = fence_in_memo()
  local ours = string.find(meta, '"fence":', 1, true)
  memo = 'F ' .. last .. ' ' .. (ours and last or released_in_memo())
  call('DEL', COUNTER, META)
  call('SET', MEMO, memo, 'PX', HOUR)
  strike_from_list(meta, id)
  tell('released', meta)
  counter, meta = false, false
end

local function gone(holder, left)
  if fence ~= '0' then tell('lost', nil, { fence = fence, lock_id = id }) end
  return { 0, holder, left }
end

if others == 0 and holds_alone() then
  free()
  return { 1 }
end
if fence ~= '0' and fence == released_in_memo() then return { 1 } end  -- the first of two tries has done it
if others == 0 and not meta then return gone() end

--#include _grant
--#include _crowd

if meta and not is_shared(meta) and holds_alone() then
  end_progress(id, opening)
  free()
  hand_over()
  return { 1 }
end

local held = crowd > 0 and call('HGET', HOLDERS, id)
if is_meant(held) then
  drop_permit(id)
  mirror()
  end_progress(id, opening)
  strike_from_list(held, id)
  tell('released', held)
  remember(crowd == 0 and 'F' or 'L', max(HOUR, call('PTTL', MEMO)), string.match(held, '"fence":(%d+)'))
  hand_over()
  return { 1 }
end

local client, _, _, identity
if others > 0 and call('ZSCORE', QUEUE, id) then client, _, _, identity = waiter(id) end
if is_meant(identity) then
  if execution ~= '' then wake(client, 'removed', SCOPE, id) end  -- it may live, and would come back
  local was_head = call('ZRANGE', QUEUE, 0, 0)[1] == id
  leave_queue(id)
  strike_from_list(identity, id)
  tell('left', identity)
  if was_head then
    hand_over()
    tell_head()
  end
  return { 1 }
end

-- A permit that is not there may well have been released, whoever holds the others.
if meta and not is_shared(meta) then return gone(meta, call('PTTL', META)) end
return gone()
