"""Lua scripts on job records. Each is one atomic decision; running one twice changes nothing more."""

from potstill.contracts.state import TRANSITIONS

# The transition table as a Lua table, so that Redis itself refuses what it does not allow.
_TABLE = "".join(
    f"['{before}']={{{','.join(f'[{chr(39)}{after}{chr(39)}]=true' for after in sorted(afters))}}},"
    for before, afters in TRANSITIONS.items()
)

# The state that follows from the record: a job nobody holds does not run.
_DERIVE = f"""
local legal = {{{_TABLE}}}
local function derive(job, lease)
  local state = redis.call('HGET', job, 'state')
  if not state then return nil end
  if (state == 'starting' or state == 'running') and redis.call('EXISTS', lease) == 0 then
    local command = redis.call('HGET', job, 'command')
    if command == 'cancel' then return 'cancelled' end
    if command == 'pause' then return 'paused' end
    return 'queued'
  end
  return state
end
"""

# KEYS jobs, sequence, job, idempotency, open jobs; ARGV id, spec, now, keyed, digest, key seconds.
# nil: the key was used for another request.
CREATE = """
if ARGV[4] == '1' then
  local known = redis.call('GET', KEYS[4])
  if known then
    local id, digest = string.match(known, '^([^|]*)|(.*)$')
    if digest == ARGV[5] then return id end
    return nil
  end
end
if redis.call('EXISTS', KEYS[3]) == 1 then return ARGV[1] end
if ARGV[4] == '1' then redis.call('SET', KEYS[4], ARGV[1] .. '|' .. ARGV[5], 'EX', ARGV[6]) end
redis.call('HSET', KEYS[3], 'state', 'queued', 'command', 'run', 'spec', ARGV[2], 'created_at', ARGV[3])
local order = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[1], order, ARGV[1])
redis.call('ZADD', KEYS[5], order, ARGV[1])
return ARGV[1]
"""

# KEYS job, lease; ARGV verb, now. Without a lane the state changes here; with one, the lane is asked.
COMMAND = (
    _DERIVE
    + """
local state = derive(KEYS[1], KEYS[2])
if not state then return {'missing', ''} end
local held = redis.call('EXISTS', KEYS[2]) == 1
local target = ({cancel = 'cancelled', pause = 'paused', resume = 'queued'})[ARGV[1]]
if ARGV[1] == 'resume' and (state == 'queued' or state == 'starting' or state == 'running') then
  if redis.call('HGET', KEYS[1], 'command') == 'cancel' then return {'illegal', state} end
  redis.call('HSET', KEYS[1], 'command', 'run')
  return {'ok', state}
end
if state == target then
  redis.call('HSET', KEYS[1], 'state', target, 'command', 'run')
  return {'ok', state}
end
if not legal[state][target] then return {'illegal', state} end
if held then
  if ARGV[1] == 'pause' and redis.call('HGET', KEYS[1], 'command') == 'cancel' then return {'illegal', state} end
  redis.call('HSET', KEYS[1], 'command', ARGV[1])
  return {'ok', state}
end
redis.call('HSET', KEYS[1], 'state', target, 'command', 'run')
if target == 'cancelled' then redis.call('HSET', KEYS[1], 'finished_at', ARGV[2]) end
return {'ok', target}
"""
)

# KEYS job, lease, open jobs; ARGV lane, owner, incarnation, lease ms, now, id.
CLAIM = (
    _DERIVE
    + """
local stored = redis.call('HGET', KEYS[1], 'state')
if not stored or next(legal[stored]) == nil then
  redis.call('ZREM', KEYS[3], ARGV[6])
  return 0
end
if stored == 'paused' then return 0 end
local holder = redis.call('GET', KEYS[2])
if holder then
  local owner = string.match(holder, '^(.*)|[^|]*$')
  if owner ~= ARGV[2] or holder == ARGV[2] .. '|' .. ARGV[3] then return 0 end
else
  local state = derive(KEYS[1], KEYS[2])
  if state ~= 'queued' then
    redis.call('HSET', KEYS[1], 'state', state, 'command', 'run')
    if state == 'cancelled' then redis.call('HSET', KEYS[1], 'finished_at', ARGV[5]) end
    return 0
  end
end
redis.call('SET', KEYS[2], ARGV[2] .. '|' .. ARGV[3], 'PX', ARGV[4])
redis.call('HSET', KEYS[1], 'state', 'starting', 'lane', ARGV[1])
return 1
"""
)

# KEYS job, lease; ARGV holder, lease ms. nil: lost.
RENEW = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return nil end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return redis.call('HGET', KEYS[1], 'command') or 'run'
"""

# KEYS job, lease; ARGV holder, release, then fields and values. 0: the lease is lost.
ADVANCE = (
    _DERIVE
    + """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
for i = 3, #ARGV, 2 do
  if ARGV[i] == 'state' then
    local before = redis.call('HGET', KEYS[1], 'state')
    if before ~= ARGV[i + 1] and not legal[before][ARGV[i + 1]] then
      return redis.error_reply('illegal transition ' .. before .. ' to ' .. ARGV[i + 1])
    end
  end
  if ARGV[i] == 'started_at' then
    redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
if ARGV[2] == '1' then redis.call('DEL', KEYS[2]) end
return 1
"""
)
