-- USED is a ring: how many it has room for, how many were ever let through, the first of them that may
-- matter, the last moment, the moment of that first; then a moment each. All are doubles.

local HEADER = 40
local size, total, oldest, last, first = 0, 0, 0, 0, 0
local head = call('GETRANGE', USED, 0, HEADER - 1)
if #head == HEADER then size, total, oldest, last, first = struct.unpack('<ddddd', head) end
if last < now - per then total, oldest = 0, 0 end  -- it can begin anew

local function offset(index)
  return HEADER + (index % size) * 8
end

local function at(index)
  local from = offset(index)
  return (struct.unpack('<d', call('GETRANGE', USED, from, from + 7)))
end

-- The first that came at this moment or later, and its moment. Most often it is where it was, or next to it.
local function first_after(edge)
  if oldest == total or first >= edge then return oldest, first end
  local low, step, high, came = oldest, 1, total, 0
  while low + step < total do
    local moment = at(low + step)
    if moment >= edge then
      high, came = low + step, moment
      break
    end
    low, step = low + step, step * 2
  end
  while high - low > 1 do
    local middle = floor((low + high) / 2)
    local moment = at(middle)
    if moment < edge then low = middle else high, came = middle, moment end
  end
  return high, came
end

oldest, first = first_after(now - per)

local function write_header()
  call('SETRANGE', USED, 0, struct.pack('<ddddd', size, total, oldest, last, first))
end

local function make_room(needed)
  local kept = ''
  if total > oldest then
    local from, to = offset(oldest), offset(total)
    if from < to then
      kept = call('GETRANGE', USED, from, to - 1)
    else
      kept = call('GETRANGE', USED, from, HEADER + size * 8 - 1)
      if to > HEADER then kept = kept .. call('GETRANGE', USED, HEADER, to - 1) end
    end
  end
  size = max(size, 8)
  while size < needed do size = size * 2 end
  total, oldest = total - oldest, 0
  -- All of it at once: the server would take twice of what a string grows by.
  call('SET', USED, string.rep('\0', HEADER) .. kept .. string.rep('\0', size * 8 - #kept))
end

local function append(slot)
  if total + cost - oldest > size then make_room(total + cost - oldest) end
  if total == oldest then first = slot end
  local left, moment_bytes = cost, struct.pack('<d', slot)
  while left > 0 do
    local run = min(left, size - total % size)
    call('SETRANGE', USED, offset(total), run == 1 and moment_bytes or string.rep(moment_bytes, run))
    total, left = total + run, left - run
  end
  last = slot
  write_header()
  call('PEXPIRE', USED, slot == now and ARGV[4] or format('%.0f', max(1, ceil((slot + per - now) / 1000))))
end
