-- A bucket of `burst` that empties evenly, `limit` every `per`.
-- USED is the level and when it was so, both doubles; what is booked ahead stands above the brim.

--#include _ask
--#include _level

if (level + cost - burst) * unit <= 0.01 and not looks_only then
  level = level + cost
  keep(level)
  local remaining = max(0, floor(burst - level + 0.000001))
  return { 1, burst - remaining, remaining, 0, full(level), now }
end

--#include _limit

local slot = now + max(0, ceil((level + cost - burst) * unit - 0.01))
local remaining = max(0, floor(burst - level + 0.000001))
if looks_only then
  local rule = slot > now and deny or allow
  return rule(burst - remaining, remaining, slot, full(level))
end
if slot > now then
  local vacancy = patience > 0 and take_vacancy(min(slot, now + patience))
  if vacancy then return allow(burst, 0, vacancy, full(level)) end
  if slot - now > patience then return deny(burst - remaining + cost, remaining, slot, full(level)) end
end
level = level + cost
keep(level)
remaining = max(0, floor(burst - level + 0.000001))
return allow(burst - remaining, remaining, slot, full(level))
