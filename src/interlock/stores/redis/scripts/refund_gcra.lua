-- Give back what was booked for a moment to come.
-- ARGV   8 that moment

--#include _ask
--#include _limit
--#include _level

local slot = tonumber(ARGV[8])
if slot <= now or level <= burst then return 0 end
vacate(slot, full(level), function(at, room)
  if at < now + (level - burst) * unit - 1 then return false end
  level = level - room
  return true
end)
keep(max(level, 0.000001))
return 1
