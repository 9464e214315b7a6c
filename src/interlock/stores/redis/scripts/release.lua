-- Give back a lease, an offer or a place in the queue. Ownership is checked and acted on in one step.
-- ARGV   5 lock_id  6 opening of its sidecar  7 fence, 0 if unknown
-- reply  {1} released   {0} there was nothing to release   {0, holder, ms left} somebody else has it

local id, opening, fence = ARGV[5], ARGV[6], ARGV[7]

--#include _state

local function free()
  local last = fence_in_memo()
  local ours = string.find(meta, '"fence":', 1, true)
  memo = 'F ' .. last .. ' ' .. (ours and last or released_in_memo())
  call('DEL', COUNTER, META)
  call('SET', MEMO, memo, 'PX', HOUR)
  counter, meta = false, false
end

if others == 0 and meta and is_mine(meta, id, opening) then
  free()
  return { 1 }
end
if fence ~= '0' and fence == released_in_memo() then return { 1 } end  -- the first of two tries has done it
if others == 0 and not meta then return { 0 } end

--#include _grant
--#include _crowd

if meta and not is_shared(meta) and is_mine(meta, id, opening) then
  free()
  hand_over()
  return { 1 }
end

local held = crowd > 0 and call('HGET', HOLDERS, id)
if held then
  drop_permit(id)
  mirror()
  remember(crowd == 0 and 'F' or 'L', max(HOUR, call('PTTL', MEMO)), string.match(held, '"fence":(%d+)'))
  hand_over()
  return { 1 }
end

if others > 0 and call('ZSCORE', QUEUE, id) then
  local was_head = call('ZRANGE', QUEUE, 0, 0)[1] == id
  leave_queue(id)
  if was_head then
    hand_over()
    tell_head()
  end
  return { 1 }
end

-- A permit that is not there may well have been released, whoever holds the others.
if meta and not is_shared(meta) then return { 0, meta, call('PTTL', META) } end
return { 0 }
