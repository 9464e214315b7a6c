-- Several permits, foreign holders, and the queue: what it takes when more than one wants the scope.

local WAKE, WINDOW, GRACE = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local WAITERS, SEEN, HOLDERS = KEYS[5], KEYS[6], KEYS[8]
local min, max = math.min, math.max
local now = clock[1] * 1000 + floor(clock[2] / 1000)

local state = memo and string.sub(memo, 1, 1) or 'F'

local function remember(new_state, px, released, orphan)
  state = new_state
  memo = state .. ' ' .. fence_in_memo() .. ' ' .. (released or released_in_memo()) .. (orphan or '')
  call('SET', MEMO, memo, 'PX', format('%.0f', px))
end

-- ---------------------------------------------------------------- several permits

local crowd = 0  -- unexpired holders, on a scope of more than one permit

local function is_shared(record)  -- one of ours, not a foreign one with a field of that name
  return string.find(record, '"permits":%d+,"locked_at":"[^"]*","fence":%d') ~= nil
end

-- Show the crowd to those who read only counter and sidecar. A foreign sidecar is left as it is.
local function mirror()
  if crowd == 0 then
    if not meta or is_shared(meta) then
      call('DEL', COUNTER, META)
      counter, meta = false, false
    end
    call('DEL', PERMITS, HOLDERS)
    return
  end
  local top = call('ZRANGE', PERMITS, -1, -1, 'WITHSCORES')
  local left = max(1, tonumber(top[2]) - now)
  call('PEXPIRE', PERMITS, left + 1000)
  call('PEXPIRE', HOLDERS, left + 1000)
  if meta and not is_shared(meta) then return end
  meta, counter = call('HGET', HOLDERS, top[1]), tostring(crowd)
  call('SET', COUNTER, counter, 'PX', left)
  call('SET', META, meta, 'PX', left)
end

local function drop_permit(id)
  local record = call('HGET', HOLDERS, id)
  call('ZREM', PERMITS, id)
  call('HDEL', HOLDERS, id)
  crowd = crowd - 1
  return record
end

local told = false
if others > 0 then
  crowd = call('ZCARD', PERMITS)
  if crowd > 0 then
    local ended = call('ZRANGEBYSCORE', PERMITS, '-inf', '(' .. format('%.0f', now))
    for _, id in ipairs(ended) do
      local record = drop_permit(id)
      if record then strike_from_list(record, id) end
      tell('expired', record)
      told = true
    end
    -- A counter that outlives the last of them may be somebody's who has come since.
    if #ended > 0 and crowd > 0 then mirror() end
  end
end
if meta and crowd == 0 and is_shared(meta) then
  counter, meta = false, false  -- a mirror of nobody
end

-- A lease that has ended by itself left its memo only. Told once: state E is as F.
if followed and state == 'L' and not meta and not counter and crowd == 0 then
  if not told then tell('expired', nil, { fence = fence_in_memo() }) end
  memo, state = 'E' .. string.sub(memo, 2), 'E'
  call('SET', MEMO, memo, 'KEEPTTL')
end

local function narrowest(wanted)
  local width = wanted
  for _, record in ipairs(call('HVALS', HOLDERS)) do
    width = min(width, tonumber(string.match(record, '"permits":(%d+)')))
  end
  return width
end

-- ---------------------------------------------------------------- foreign holders

-- What was left without an end, by an n8n that was killed or by one that is just about to set it.
local function end_in_grace(key)
  call('PEXPIRE', key, GRACE)
  return GRACE
end

-- A counter stands that no sidecar vouches for. It is respected until it would have ended when it was first
-- seen; a remnant, which is what contenders keep alive of a lease of ours, for the grace at the most.
-- Contenders count up before they prolong: one that counts less than before, or ends later without
-- counting more, is a new hold. Answers the ms that are left to it.
local function orphan_ends_in()
  local count, ends = max(0, tonumber(counter) or 0), call('PTTL', COUNTER)
  if ends < 0 then
    ends = end_in_grace(COUNTER)
  elseif state == 'O' then
    local due, till, seen, seen_end = string.match(memo, '(%d+) (%d+) (%d+) (%d+)$')
    local same = count > tonumber(seen) or (count == tonumber(seen) and now + ends <= seen_end + 100)
    if same and now <= tonumber(till) then return due - now end
  end
  local left = ends
  if state == 'L' and count > 1 then left = min(ends, GRACE) end
  local due = now + left
  remember('O', left + HOUR, nil, format(' %.0f %.0f %.0f %.0f', due, due + 60000, count, now + ends))
  return left
end

-- ---------------------------------------------------------------- the holder's progress

local function shows_progress(id, opening)
  local details = others > 0 and call('GET', DETAILS)
  return details and is_mine(details, id, opening)
end

local function prolong_progress(id, opening, ttl)
  if shows_progress(id, opening) then
    call('PEXPIRE', STATUS, ttl)
    call('PEXPIRE', DETAILS, ttl)
  end
end

local function end_progress(id, opening)
  if shows_progress(id, opening) then call('DEL', STATUS, DETAILS) end
end

-- What the holder of a lease says. That of a lease which somebody else has deleted is cleared away.
local function progress_of_a_lease()
  local details = others > 0 and call('GET', DETAILS)
  if not details or not string.find(details, '^{"lock_id":"') then return nil end
  local said = cjson.decode(details)
  local id = said.lock_id
  local holds = crowd > 0 and call('HEXISTS', HOLDERS, id) == 1
  if holds or meta and is_mine(meta, id, '{"lock_id":' .. cjson.encode(id) .. ',') then return details end
  if call('GET', STATUS) == said.value then call('DEL', STATUS) end
  call('DEL', DETAILS)
end

-- ---------------------------------------------------------------- who may have it

local ends_in = nil  -- ms until the scope may be free, as far as one can tell; set by admits()

local function admits(wanted)
  ends_in = nil
  if meta and not is_shared(meta) then
    local left = call('PTTL', META)
    if left < 0 then left = counter and call('PTTL', COUNTER) or end_in_grace(META) end
    if left >= 0 then ends_in = left end
    if state == 'O' then remember('F', HOUR) end
    return false
  end
  if crowd > 0 then
    if crowd < narrowest(wanted) then return true end
    ends_in = tonumber(call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')[2]) - now
    return false
  end
  if counter then
    ends_in = orphan_ends_in()
    if ends_in > 0 then return false end
    call('DEL', COUNTER)
    counter, ends_in = false, nil
    return true
  end
  return true
end

local function grant(id, identity, ttl, permits, hold, note)
  progress_of_a_lease()
  if permits == 1 then
    state = 'L'
    return grant_alone(id, identity, ttl, hold, note)
  end
  local record, fence, at = new_record(identity, note)
  crowd = crowd + 1
  call('ZADD', PERMITS, now + hold, id)
  call('HSET', HOLDERS, id, record)
  mirror()
  memo = 'L ' .. fence .. ' ' .. released_in_memo()
  remember('L', ttl + DAY)
  put_on_list(record, id, ttl)
  tell(note == '' and 'acquired' or 'handed_over', record, { ttl = hold })
  return { 1, tonumber(fence), at, crowd }
end

-- ---------------------------------------------------------------- the queue

local OFFERED = ',"offered":true'

local function wake(client, ...)
  return call('PUBLISH', WAKE .. client, table.concat({ ... }, '\n'))
end

local function leave_queue(id)
  call('HDEL', WAITERS, id)
  call('ZREM', QUEUE, id)
end

local function waiter(id)
  local record = call('HGET', WAITERS, id)
  if not record then return nil end
  return string.match(record, '^(%S+) (%d+) (%d+) (.*)$')
end

-- How long the client may still be silent before it counts as dead; a quarter second for a late beat.
local function patience(client)
  return (tonumber(call('ZSCORE', SEEN, client)) or 0) + WINDOW + 250 - now
end

-- Forget the waiters in front of the queue that have not been heard of for the window.
local function first_living()
  while true do
    local id = call('ZRANGE', QUEUE, 0, 0)[1]
    if not id then return nil end
    local client, ttl, permits, identity = waiter(id)
    if client and patience(client) > 0 then return id, client, tonumber(ttl), tonumber(permits), identity end
    leave_queue(id)
    if identity then
      strike_from_list(identity, id)
      tell('left', identity)
    end
  end
end

local function tell_head()
  local id, client = first_living()
  if id then wake(client, 'head', SCOPE) end
end

-- Hand the scope to the first waiters that live, as far as there is room. What they get is an offer, which
-- they claim at once; whoever does not has died, and the offer ends when that would have shown anyway.
-- The caller itself needs no message: its grant is the answer.
local function hand_over(caller)
  local granted = nil
  while true do
    local id, client, ttl, permits, identity = first_living()
    if not id or not admits(permits) then
      if granted and id then wake(client, 'head', SCOPE) end
      return granted
    end
    leave_queue(id)
    if id == caller then
      granted = grant(id, identity, ttl, permits, ttl, '')
    elseif wake(client, 'claim', SCOPE, id) > 0 then
      grant(id, identity, ttl, permits, min(ttl, max(500, patience(client))), OFFERED)
    end
  end
end

-- {record, ms left, ...} of all who hold the scope; a counter without a sidecar has the record ''.
local function holds()
  if meta and not is_shared(meta) then return { meta, call('PTTL', META) } end
  local list = {}
  if crowd > 0 then
    local ends = call('ZRANGE', PERMITS, 0, -1, 'WITHSCORES')
    for i = 1, #ends, 2 do
      list[#list + 1] = call('HGET', HOLDERS, ends[i])
      list[#list + 1] = ends[i + 1] - now
    end
  elseif counter then
    list = { '', call('PTTL', COUNTER) }
  end
  return list
end
