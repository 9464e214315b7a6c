-- What every script knows of one scope. Put in front of each of them when it is loaded.
--
-- KEYS  1 counter  n8n-lock-<scope>       integer; whoever made it 1 holds the lock (n8n's rule)
--       2 sidecar  n8n-lock-<scope>:meta  JSON of the holder: the truth, of which the counter is a mirror
--       3 memo     '<state> <last fence> [<due> <until>]'; state L leased, F free, O orphan seen
--       4 queue    zset: lock_id -> place, first come first
--       5 waiters  hash: lock_id -> '<client> <ttl> <permits> <identity>'
--       6 seen     zset: client -> when it was last heard of
--       7 permits  zset: lock_id -> end of its lease        (only for scopes of more than one permit)
--       8 holders  hash: lock_id -> JSON of that holder     (likewise)
-- ARGV  1 scope  2 prefix of the wake channels  3 liveness window in ms  4 grace for orphans in ms

local COUNTER, META, MEMO, QUEUE, WAITERS, SEEN, PERMITS, HOLDERS = unpack(KEYS)
local SCOPE, WAKE, WINDOW, GRACE = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local call, floor, format, min, max = redis.call, math.floor, string.format, math.min, math.max
local HOUR, DAY = 3600000, 86400000

local clock = call('TIME')
local now = clock[1] * 1000 + floor(clock[2] / 1000)

-- A fence of the last hour survives in the memo, so that a clock set back does not let it shrink.
local state, last_fence, due, till = 'F', 0, nil, nil
local counter, meta, memo = unpack(call('MGET', COUNTER, META, MEMO))
if memo then
  local s, f, d, u = string.match(memo, '^(%a) (%d+) ?(%d*) ?(%d*)$')
  if s then
    state, last_fence, due, till = s, tonumber(f), tonumber(d), tonumber(u)
  end
end

local function remember(new_state, px, new_due, new_till)
  state, due, till = new_state, new_due, new_till
  local text = format('%s %.0f', state, last_fence)
  if due then text = format('%s %.0f %.0f', text, due, till) end
  call('SET', MEMO, text, 'PX', px)
end

-- ---------------------------------------------------------------- several permits

local crowd = 0  -- unexpired holders, on a scope of more than one permit

local function is_shared(record)
  return string.find(record, '"permits":', 1, true) ~= nil
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
  call('ZREM', PERMITS, id)
  call('HDEL', HOLDERS, id)
  crowd = crowd - 1
end

-- One EXISTS tells the common case, nobody waits and nobody shares, from all others.
local others = call('EXISTS', QUEUE, PERMITS)
if others > 0 then
  crowd = call('ZCARD', PERMITS)
  if crowd > 0 then
    local ended = call('ZRANGEBYSCORE', PERMITS, '-inf', now)
    for _, id in ipairs(ended) do drop_permit(id) end
    if #ended > 0 then mirror() end
  end
end
if meta and crowd == 0 and is_shared(meta) then
  counter, meta = false, false  -- a mirror of nobody
end

local function narrowest(wanted)
  local width = wanted
  for _, record in ipairs(call('HVALS', HOLDERS)) do
    width = min(width, tonumber(string.match(record, '"permits":(%d+)')))
  end
  return width
end

-- ---------------------------------------------------------------- foreign holders

-- Something stands that no living holder vouches for. It is respected until it would have ended when it
-- was first seen, or for the grace where it has no end, or where it is what is left of a lease of ours
-- that contenders kept alive. `ends` in ms, nil for never. Answers whether its time is over.
local function orphan_is_due(ends, ours)
  if state == 'O' and due and now <= till then return now >= due end
  local wait, keep = ends, WINDOW
  if not ends then
    wait, keep = GRACE, 600000
  elseif ours then
    wait = min(ends, GRACE)
  end
  remember('O', wait + HOUR, now + wait, now + wait + keep)
  return false
end

-- ---------------------------------------------------------------- who may have it

local function owner(record)
  local ok, fields = pcall(cjson.decode, record)
  return ok and type(fields) == 'table' and fields.lock_id or nil
end

-- `opening` is how a sidecar of ours with that lock_id begins: it saves the decoding.
local function is_mine(record, id, opening)
  return record and (string.sub(record, 1, #opening) == opening or owner(record) == id)
end

local ends_in = nil  -- ms until the scope may be free, as far as one can tell; set by admits()

local function admits(wanted)
  ends_in = nil
  if meta and not is_shared(meta) then
    local left = call('PTTL', META)
    if left >= 0 then
      ends_in = left
    elseif counter then
      left = call('PTTL', COUNTER)
      if left >= 0 then ends_in = left end
    elseif orphan_is_due(nil, false) then
      call('DEL', META)
      meta = false
      return true
    else
      ends_in = due - now
    end
    if state == 'O' and (counter or left >= 0) then remember('F', HOUR) end
    return false
  end
  if crowd > 0 then
    if crowd < narrowest(wanted) then return true end
    ends_in = tonumber(call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')[2]) - now
    return false
  end
  if counter then
    local left = call('PTTL', COUNTER)
    if orphan_is_due(left >= 0 and left or nil, state == 'L') then
      call('DEL', COUNTER)
      counter = false
      return true
    end
    ends_in = due - now
    return false
  end
  return true
end

local function locked_at()
  local days = floor(clock[1] / 86400)
  local rest = clock[1] - days * 86400
  -- A civil date from a day count, in years that begin in March.
  days = days + 719468
  local era = floor(days / 146097)
  local doe = days - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local march = floor((5 * doy + 2) / 153)
  local month = march < 10 and march + 3 or march - 9
  return format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', yoe + era * 400 + (month <= 2 and 1 or 0), month,
    doy - floor((153 * march + 2) / 5) + 1, floor(rest / 3600), floor(rest / 60) % 60, rest % 60,
    floor(clock[2] / 1000))
end

-- Fences come from a clock that never runs backwards, so they grow although nobody keeps them for ever.
local function grant(id, identity, ttl, permits, hold, note)
  last_fence = max(last_fence + 1, clock[1] * 1000000 + clock[2])
  local at = locked_at()
  local record = format('%s,"locked_at":"%s","fence":%.0f%s}', string.sub(identity, 1, -2), at, last_fence, note)
  if permits == 1 then
    counter, meta = '1', record
    call('SET', COUNTER, '1', 'PX', hold)
    call('SET', META, record, 'PX', hold)
  else
    crowd = crowd + 1
    call('ZADD', PERMITS, now + hold, id)
    call('HSET', HOLDERS, id, record)
    mirror()
  end
  remember('L', ttl + DAY)
  return { 1, last_fence, at, tonumber(counter) }
end

-- ---------------------------------------------------------------- the queue

local OFFERED = ',"offered":true'

local function wake(client, ...)
  return call('PUBLISH', WAKE .. client, table.concat({ ... }, '\n'))
end

local function leave_queue(id)
  call('HDEL', WAITERS, id)
  return call('ZREM', QUEUE, id) == 1
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
    if not id or not admits(permits) then return granted end
    leave_queue(id)
    if id == caller then
      granted = grant(id, identity, ttl, permits, ttl, '')
    elseif wake(client, 'claim', SCOPE, id) > 0 then
      grant(id, identity, ttl, permits, min(ttl, max(1000, patience(client))), OFFERED)
    end
  end
end

local function free_mutex()
  call('DEL', COUNTER, META)
  counter, meta = false, false
  remember('F', HOUR)
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
