local window = floor(floor(now / 1000) / (per / 1000))

local function starts(number)
  return number * per
end

local function window_of(at)
  return floor(floor(at / 1000) / (per / 1000))
end

local function counter_of(number)
  return USED .. moment(number)
end

local function used_in(number)
  return tonumber(call('GET', counter_of(number))) or 0
end

local function count(number)
  local used = call('INCRBY', counter_of(number), cost)
  expire(counter_of(number), starts(number + 1))
  return used
end
