-- How a lease begins. Fences come from a clock that only goes forward, so that they grow although nobody
-- keeps them for ever; that of the last hour is in the memo, should the clock be set back.

--#include _clock

local function new_record(identity, note)
  local fence = format('%.0f', math.max(fence_in_memo() + 1, clock[1] * 1000000 + clock[2]))
  local at = iso_time()
  return string.sub(identity, 1, -2) .. ',"locked_at":"' .. at .. '","fence":' .. fence .. note .. '}', fence, at
end

-- Remember for an execution's clean-up what it got, for as long as it may have it.
local function put_on_list(record, id, ttl)
  local execution = execution_of(record)
  if not execution then return end
  local list, seconds = execution_key(execution), clock[1] + 0
  call('ZREMRANGEBYSCORE', list, '-inf', '(' .. seconds)
  call('ZADD', list, seconds + math.ceil(ttl / 1000) + 1, id .. '\n' .. SCOPE)
  if call('PTTL', list) < ttl then call('PEXPIRE', list, ttl) end
end

local function grant_alone(id, identity, ttl, hold, note)
  local record, fence, at = new_record(identity, note)
  call('SET', COUNTER, 1, 'PX', hold)
  call('SET', META, record, 'PX', hold)
  memo = 'L ' .. fence .. ' ' .. released_in_memo()
  call('SET', MEMO, memo, 'PX', format('%.0f', ttl + DAY))
  counter, meta = '1', record
  put_on_list(record, id, ttl)
  tell(note == '' and 'acquired' or 'handed_over', record, { ttl = hold })
  return { 1, tonumber(fence), at, 1 }
end
