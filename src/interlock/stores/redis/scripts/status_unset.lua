-- Take a status away, unless it is the progress of a lease.
-- reply  {1} it is gone   {0, details} it is a lease's

--#include _state
--#include _grant
--#include _crowd

local progress = progress_of_a_lease()
if progress then return { 0, progress } end
if call('DEL', STATUS, DETAILS) > 0 then tell('progress') end
return { 1 }
