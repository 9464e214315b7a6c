-- How much is used, with what is booked ahead. ARGV as for a limit.
-- reply  {used, per in ms, when all of it is free again}

--#include _ask
--#include _ring

return { total - oldest, ARGV[4] + 0, max(now, last + per) }
