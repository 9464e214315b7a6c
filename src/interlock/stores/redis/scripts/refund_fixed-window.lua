-- Give back what was booked for a window to come.
-- ARGV   8 the moment that was booked

--#include _ask
--#include _limit
--#include _windows

local slot, latest = tonumber(ARGV[8]), tonumber(call('GET', AHEAD)) or 0
local booked = window_of(slot)
if slot <= now or booked <= window or used_in(booked) < cost then return 0 end
call('DECRBY', counter_of(booked), cost)
while latest > window and used_in(latest) == 0 do
  call('DEL', counter_of(latest))
  latest = latest - 1
end
if latest > window then
  call('SET', AHEAD, moment(latest), 'PX', format('%.0f', ceil((starts(latest + 1) - now) / 1000)))
else
  call('DEL', AHEAD)
end
vacate(slot, starts(latest + 1), function(at) return window_of(at) > latest end)
return 1
