-- How full the bucket is, with what is booked ahead. Nobody says here what the limit is: the bucket is empty
-- when its key expires, and empties evenly. ARGV as for a limit.
-- reply  {used, per in ms, when all of it is free again}

--#include _ask

local stands = call('GET', USED)
if not stands then return { 0, 0, 0 } end
local was, at = struct.unpack('<dd', stands)
local ends = now + call('PTTL', USED) * 1000
local level = min(was, was * (ends - now) / max(1, ends - at))
return { ceil(level - 0.000001), ARGV[4] + 0, ends }
