-- USED is a ring: how many it has room for, how many were ever let through, the first of them that may
-- matter, the last moment; then a moment each. All are doubles.

local HEADER = 32
local size, total, oldest, last = 0, 0, 0, 0
local head = call('GETRANGE', USED, 0, HEADER - 1)
if #head == HEADER then size, total, oldest, last = struct.unpack('<dddd', head) end
if last < now - per then total, oldest = 0, 0 end  -- it can begin anew

local function offset(index)
  return HEADER + (index % size) * 8
end

local function at(index)
  return (struct.unpack('<d', call('GETRANGE', USED, offset(index), offset(index) + 7)))
end

-- The first that came at this moment or later. Most often it is where it was, or near.
local function first_after(edge)
  local low, step = oldest, 1
  if low == total or at(low) >= edge then return low end
  while low + step < total and at(low + step) < edge do
    low, step = low + step, step * 2
  end
  local high = min(low + step, total)
  while high - low > 1 do
    local middle = floor((low + high) / 2)
    if at(middle) < edge then low = middle else high = middle end
  end
  return high
end

local function write_header()
  call('SETRANGE', USED, 0, struct.pack('<dddd', size, total, oldest, last))
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
  call('SET', USED, string.rep('\0', HEADER) .. kept)
end

local function append(slot)
  oldest = first_after(now - per)
  if total + cost - oldest > size then make_room(total + cost - oldest) end
  local left, moment_bytes = cost, struct.pack('<d', slot)
  while left > 0 do
    local run = min(left, size - total % size)
    call('SETRANGE', USED, offset(total), string.rep(moment_bytes, run))
    total, left = total + run, left - run
  end
  last = slot
  write_header()
  expire(USED, slot + per)
end
