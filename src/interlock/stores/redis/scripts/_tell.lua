-- What happens is told to those who follow, if anybody does. Needs `followed`, EVENTS and SCOPE.

local function tell(event, record, more)
  if not followed then return end
  local said, time = more or {}, call('TIME')
  said.event, said.scope, said.record = event, SCOPE, record or nil
  said.at = time[1] .. '.' .. format('%06d', time[2])
  call('PUBLISH', EVENTS, cjson.encode(said))
end
