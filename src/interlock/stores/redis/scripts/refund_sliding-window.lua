-- Give back what was booked for a moment to come.
-- ARGV   8 that moment

--#include _ask
--#include _limit
--#include _ring

local slot = tonumber(ARGV[8])
if slot <= now or last <= now then return 0 end
vacate(slot, last + per, function(vacant, room)
  if vacant < last then return false end
  total = total - room
  last = total > oldest and at(total - 1) or 0
  return true
end)
write_header()
return 1
