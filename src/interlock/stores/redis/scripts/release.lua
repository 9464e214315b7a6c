-- Give back a lease, an offer or a place in the queue. Ownership is checked and acted on in one step.
-- ARGV   5 lock_id  6 opening of its sidecar  7 fence, 0 if unknown
-- reply  {1} released   {0} there was nothing to release   {0, holder, ms left} somebody else has it

local id, opening, fence = ARGV[5], ARGV[6], ARGV[7]

--#include _state

local function free()
  call('DEL', COUNTER, META)
  call('SET', MEMO, 'F ' .. fence_in_memo(), 'PX', HOUR)
  counter, meta = false, false
end

if not meta and memo == 'F ' .. fence then return { 1 } end  -- an earlier try, whose answer was lost

if others == 0 then
  if not meta then return { 0 } end
  if is_mine(meta, id, opening) then
    free()
    return { 1 }
  end
end

--#include _grant
--#include _crowd

if meta and not is_shared(meta) and is_mine(meta, id, opening) then
  free()
  hand_over()
  return { 1 }
end

if crowd > 0 and call('HEXISTS', HOLDERS, id) == 1 then
  drop_permit(id)
  mirror()
  if crowd == 0 then remember('F', HOUR) end
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

if meta then return { 0, meta, call('PTTL', META) } end
return { 0 }
