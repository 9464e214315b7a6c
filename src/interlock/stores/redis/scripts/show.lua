-- Who holds the scope and who waits for it. Changes nothing but to forget what has expired.
-- reply  {count, {record, ms left, ...}, waiting, {identity, ...}}   the first thousand waiters

--#include _state
--#include _grant
--#include _crowd

local line = {}
for _, id in ipairs(call('ZRANGE', QUEUE, 0, 999)) do
  local client, _, _, identity = waiter(id)
  if client then line[#line + 1] = identity end
end
return { tonumber(counter) or 0, holds(), call('ZCARD', QUEUE), line }
