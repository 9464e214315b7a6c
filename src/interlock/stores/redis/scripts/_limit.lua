-- What a limit needs besides _ask when a call is not simply let through.

local followed = false

--#include _tell

-- Those who wait for the same moment come a little apart, in their order.
local SPACING = min(1000, floor(per / limit / 2))

local function expire(key, at)
  call('PEXPIREAT', key, format('%.0f', ceil(at / 1000)))
end

local function allow(used, remaining, slot, free_at)
  return { 1, used, remaining, slot - now, free_at, slot }
end

local function deny(used, remaining, slot, free_at)
  if not looks_only then
    followed = call('EXISTS', FOLLOWED) == 1
    tell('denied', nil, { retry_after = (slot - now) / 1000000 })
  end
  return { 0, used, remaining, slot - now, free_at, 0 }
end

-- ---------------------------------------------------------------- what was given back

local function moment(at)
  return format('%.0f', at)
end

-- A moment before `latest` that somebody else has booked and does not need.
local function take_vacancy(latest)
  local found = call('ZRANGEBYSCORE', VACANT, moment(now), '(' .. moment(latest), 'WITHSCORES', 'LIMIT', 0, 20)
  for i = 1, #found, 2 do
    local room, slot = tonumber(string.match(found[i], '^%d+')), tonumber(found[i + 1])
    if room >= cost then
      call('ZREM', VACANT, found[i])
      if room > cost then call('ZADD', VACANT, moment(slot), format('%d %s', room - cost, moment(slot))) end
      return slot
    end
  end
end

-- Whoever comes later may have it; what is vacant at the end is not booked any more.
local function vacate(slot, ends, shorten)
  local room = cost
  for _, there in ipairs(call('ZRANGEBYSCORE', VACANT, moment(slot), moment(slot))) do
    room = room + tonumber(string.match(there, '^%d+'))
    call('ZREM', VACANT, there)
  end
  call('ZADD', VACANT, moment(slot), format('%d %s', room, moment(slot)))
  expire(VACANT, ends)
  while true do
    local last = call('ZRANGE', VACANT, -1, -1, 'WITHSCORES')
    if not last[1] or not shorten(tonumber(last[2]), tonumber(string.match(last[1], '^%d+'))) then return end
    call('ZREM', VACANT, last[1])
  end
end
