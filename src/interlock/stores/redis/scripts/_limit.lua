-- What the limits have in common. Times are microseconds by the server's clock.
--
-- KEYS  1 what is used   2 vacant: zset '<cost> <n>' -> moment, of what was booked and given back
--       3 followed       4 ahead: the last window that was booked (fixed windows)
-- ARGV  1 scope  2 channel of the events  3 limit  4 per, ms  5 cost  6 burst
--       7 patience: how many ms ahead it may be booked; 0 for now or never, -1 to change nothing
-- reply {allowed, used, remaining, µs until then, when all of it is free again, the moment that was booked}

local USED, VACANT, FOLLOWED, AHEAD, SCOPE, EVENTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2]
local limit, per, cost, burst = tonumber(ARGV[3]), tonumber(ARGV[4]) * 1000, tonumber(ARGV[5]), tonumber(ARGV[6])
local patience = tonumber(ARGV[7]) * 1000
local call, format, floor, ceil, min, max = redis.call, string.format, math.floor, math.ceil, math.min, math.max
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local followed = false

--#include _tell

local looks_only = patience < 0
-- Those who wait for the same moment come a little apart, in their order.
local SPACING = min(1000, floor(per / limit / 2))

local function expire(key, at)
  call('PEXPIRE', key, format('%.0f', max(1, ceil((at - now) / 1000))))
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
