-- A lease whose holder asks for it once more: it claims what was handed over, or a reply was lost.

local function without_offer(record)
  local plain, offered = string.gsub(record, OFFERED .. '}$', '}')
  if offered > 0 and call('EXISTS', QUEUE) == 1 then tell_head() end
  return plain
end

local function claim(id, opening, ttl)
  local record = crowd > 0 and call('HGET', HOLDERS, id)
  if record then
    call('HSET', HOLDERS, id, without_offer(record))
    call('ZADD', PERMITS, now + ttl, id)
    mirror()
  elseif meta and is_mine(meta, id, opening) then
    record = without_offer(meta)
    counter, meta = '1', record
    call('SET', META, meta, 'PX', ttl)
    call('SET', COUNTER, '1', 'PX', ttl)
    remember('L', ttl + DAY)
  else
    return nil
  end
  put_on_list(record, id, ttl)
  prolong_progress(id, opening, ttl)
  local fence, at = string.match(record, '"fence":(%d+)'), string.match(record, '"locked_at":"([^"]*)"')
  return { 1, tonumber(fence or 0), at or '', tonumber(counter) or crowd }
end
