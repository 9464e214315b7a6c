-- Write a status, unless it is the progress of a lease.
-- ARGV   8 value  9 details, a JSON object without its end  10 ttl ms
-- reply  {1} written   {0, details} it is a lease's

--#include _state
--#include _grant
--#include _crowd
--#include _show_status

local progress = progress_of_a_lease()
if progress then return { 0, progress } end
show_status(ARGV[8], ARGV[9], tonumber(ARGV[10]))
return { 1 }
