-- Take the scope, unless somebody holds or awaits it or a status stands there, and write a status.
-- ARGV   8 lock_id  9 opening of its sidecar  10 identity  11 ttl ms  12 value  13 details without its end
-- reply  {1, fence, locked_at, count}                            begun
--        {0, count, holder, holder's ms left, value, details}    not

--#include _state
--#include _grant
--#include _crowd
--#include _claim
--#include _show_status

local id, opening, identity, ttl, value, details = ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11]), ARGV[12], ARGV[13]

local reply = claim(id, opening, ttl)
if not reply then
  if others > 0 then hand_over() end  -- those in line come first
  progress_of_a_lease()
  -- An n8n that was killed between SET and EXPIRE; it would have set 600 s.
  if call('PTTL', STATUS) == -1 then call('PEXPIRE', STATUS, 600000) end
  if call('EXISTS', STATUS, QUEUE) == 0 and admits(1) then reply = grant(id, identity, ttl, 1, ttl, '') end
end
if reply then
  show_status(value, details, ttl)
  return reply
end
tell('denied', identity)
return { 0, tonumber(counter) or crowd, meta or '', ends_in or -1, call('GET', STATUS), call('GET', DETAILS) }
