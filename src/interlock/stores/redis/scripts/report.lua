-- Write the status of a scope, for as long as the lease lasts.
-- ARGV   8 lock_id  9 opening of its sidecar  10 value  11 details, a JSON object without its end
-- reply  {1} written   {0} the lease is gone   {0, holder, ms left} somebody else has the scope

--#include _state
--#include _grant
--#include _crowd
--#include _show_status

local id, opening, value, details = ARGV[8], ARGV[9], ARGV[10], ARGV[11]

local left = crowd > 0 and call('ZSCORE', PERMITS, id)
if left then
  left = left - now
elseif meta and not is_shared(meta) and is_mine(meta, id, opening) then
  left = call('PTTL', META)
else
  if meta then return { 0, meta, call('PTTL', META) } end
  return { 0 }
end
show_status(value, details, left)
return { 1 }
