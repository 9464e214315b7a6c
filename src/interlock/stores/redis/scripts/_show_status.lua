-- Needs STATUS, DETAILS and _clock.

local function show_status(value, details, ttl)
  details = details .. ',"at":"' .. iso_time() .. '"}'
  call('SET', STATUS, value, 'PX', ttl)
  call('SET', DETAILS, details, 'PX', ttl)
  tell('progress', details)
end
