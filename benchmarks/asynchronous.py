"""A hundred tasks, each acquiring and releasing a scope of its own: pairs per second of one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median

import redis.asyncio

from interlock import AsyncInterlock

from .bench import Bench
from .cores import apart
from .tables import Row, Table, at_least
from .timing import quietest
from .wire import Speaker, Wire, pack

TASKS = 100
PAIRS = 20  # of each task, in one block
ROUNDS = 30
OURS = "AsyncInterlock"
PLAIN = "plain redis.asyncio, the same two evalsha()"
CEILING = "bare socket, 100 EVALSHA a packet"

Pair = Callable[[int], Awaitable[None]]  # told which task calls


async def _pairs_per_second(pair: Pair) -> float:
    async def task(number: int) -> None:
        for _ in range(PAIRS):
            await pair(number)

    start = time.perf_counter()
    await asyncio.gather(*(task(number) for number in range(TASKS)))
    return TASKS * PAIRS / (time.perf_counter() - start)


def _plain(client: redis.asyncio.Redis) -> Pair:
    speaker = Speaker()
    lock_ids = [f"7b0c5e0e-6f0c-4f3e-9a55-0e5a1f0b{number:04d}" for number in range(TASKS)]
    acquires = [speaker.acquire(f"plain-{n}", lock_ids[n])[1:] for n in range(TASKS)]
    releases = [speaker.release(f"plain-{n}", lock_ids[n])[1:] for n in range(TASKS)]

    async def pair(number: int) -> None:
        assert (await client.evalsha(*acquires[number]))[0] == 1
        assert (await client.evalsha(*releases[number]))[0] == 1

    return pair


def _interlock(il: AsyncInterlock) -> Pair:
    async def pair(number: int) -> None:
        async with il.lock(f"async-{number}"):
            pass

    return pair


def _ceiling(port: int) -> float:
    """What the server can carry out: all acquires in one packet, all releases in the next."""
    wire, speaker = Wire(port), Speaker()
    lock_ids = [f"7b0c5e0e-6f0c-4f3e-9a55-0e5a1f0b{number:04d}" for number in range(TASKS)]
    acquires = [pack(speaker.acquire(f"bare-{n}", lock_ids[n])) for n in range(TASKS)]
    releases = [pack(speaker.release(f"bare-{n}", lock_ids[n])) for n in range(TASKS)]
    start = time.perf_counter()
    for _ in range(PAIRS):
        wire.call_many(acquires)
        wire.call_many(releases)
    took = time.perf_counter() - start
    wire.close()
    return TASKS * PAIRS / took


async def _take_turns(bench: Bench) -> dict[str, list[float]]:
    """Pairs per second of each round."""
    rates: dict[str, list[float]] = {PLAIN: [], OURS: [], CEILING: []}
    client = redis.asyncio.Redis.from_url(bench.redis.url)
    async with client, AsyncInterlock(bench.redis.url) as il:
        contenders = [(PLAIN, _plain(client)), (OURS, _interlock(il))]
        for _, pair in contenders:
            await _pairs_per_second(pair)
        for _ in range(ROUNDS):
            contenders.reverse()
            for name, pair in contenders:
                rates[name].append(await _pairs_per_second(pair))
            rates[CEILING].append(_ceiling(bench.redis.port))
    return rates


def measure(bench: Bench) -> Table:
    wire = Wire(bench.redis.port)
    wire.load_scripts()
    wire.close()
    with apart(bench.redis.pid):
        rates = asyncio.run(_take_turns(bench))
    quiet = quietest([sum(1 / rate for rate in round) for round in zip(*rates.values(), strict=True)])
    rows = []
    for name, mine in rates.items():
        times = median(mine[turn] / rates[PLAIN][turn] for turn in quiet)
        target = at_least(times, 3, "times plain") if name == OURS else None
        rows.append(Row(name, median(mine[turn] for turn in quiet), "pairs/s", times, target))
    every = median(mine / theirs for mine, theirs in zip(rates[OURS], rates[PLAIN], strict=True))
    rows.append(Row("AsyncInterlock to plain, all rounds", every, "times", None, at_least(every, 3, "times")))
    title = (
        f"2. {TASKS} tasks on {TASKS} scopes, acquire + release ({ROUNDS} rounds of {TASKS * PAIRS} pairs)"
    )
    return Table(title, "plain", rows)
