-- Take the scope from whoever holds it.
-- reply  {record, ms left, ...} of those who held it; a bare counter has the record ''

--#include _state
--#include _grant
--#include _crowd

local lost = holds()
if #lost > 0 then
  for i = 1, #lost, 2 do
    local ok, fields = pcall(cjson.decode, lost[i])
    if ok and type(fields) == 'table' and fields.lock_id then strike_from_list(lost[i], fields.lock_id) end
    tell('broken', lost[i])
  end
  local details = others > 0 and call('GET', DETAILS)
  if details and string.find(details, '^{"lock_id":"') then call('DEL', STATUS, DETAILS) end
  call('DEL', PERMITS, HOLDERS)
  crowd = 0
  call('DEL', COUNTER, META)
  counter, meta = false, false
  remember('B', HOUR)  -- not F: its holder is not the one who released it
end
if others > 0 then hand_over() end
return lost
