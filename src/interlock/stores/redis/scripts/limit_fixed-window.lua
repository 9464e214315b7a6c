-- So many in each window, counted as n8n counts: USED with the window's number is an integer.

--#include _ask

local window = floor(floor(now / 1000) / (per / 1000))
local counter = USED .. format('%.0f', window)
local found = call('MGET', counter, AHEAD)
local used, latest = tonumber(found[1]) or 0, max(window, tonumber(found[2]) or 0)  -- the last that was booked
if latest == window and used + cost <= limit and not looks_only then
  used = call('INCRBY', counter, ARGV[5])
  local ends = (window + 1) * per
  call('PEXPIREAT', counter, format('%.0f', ends / 1000))  -- an n8n may have died before its own
  return { 1, used, limit - used, 0, ends, now }
end

--#include _limit
--#include _windows

local remaining = max(0, latest > window and 0 or limit - used)
if latest == window and used + cost <= limit then return allow(used, remaining, now, starts(window + 1)) end

local vacancy = patience > 0 and take_vacancy(now + patience)
if vacancy then
  count(window_of(vacancy))
  return allow(limit, 0, vacancy, starts(latest + 1))
end
local first = max(latest, window + 1)
local before = used_in(first)
if before + cost > limit then first, before = first + 1, used_in(first + 1) end
local slot = starts(first) + before * SPACING
if slot - now > patience then
  if not looks_only then used = max(used, limit - remaining) + cost end
  return deny(used, remaining, slot, starts(latest + 1))
end
count(first)
call('SET', AHEAD, moment(first), 'PX', format('%.0f', ceil((starts(first + 1) - now) / 1000)))
return allow(before + cost, 0, slot, starts(first + 1))
