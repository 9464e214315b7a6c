-- Never more than the limit in any span of `per`, ends included: the moment of each that was let through
-- is kept until it does not matter any more.

--#include _ask
--#include _ring

local inside = total - oldest
if last <= now and inside + cost <= limit and not looks_only then
  append(now)
  return { 1, inside + cost, limit - inside - cost, 0, now + per, now }
end

--#include _limit

local free_at = max(now, last + per)
local remaining = max(0, last > now and 0 or limit - inside)
local slot = now
if last > now or inside + cost > limit then
  slot = max(now, last > now and last + SPACING or 0)
  local must_leave = total - (limit - cost) - 1
  if must_leave >= oldest then slot = max(slot, at(must_leave) + per + 1) end
end
if looks_only then
  local rule = slot > now and deny or allow
  return rule(min(inside, limit), remaining, slot, free_at)
end
if slot > now then
  local vacancy = patience > 0 and take_vacancy(min(slot, now + patience))
  if vacancy then return allow(limit, 0, vacancy, free_at) end
  if slot - now > patience then return deny(max(inside, limit - remaining) + cost, remaining, slot, free_at) end
end
append(slot)
inside = total - first_after(slot - per)
return allow(inside, max(0, limit - inside), slot, slot + per)
