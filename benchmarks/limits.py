"""Rate limits: one decision at a time, those of a hundred tasks, on a local file, and what a scope takes.

A peer is a measure where its algorithm is the same. limits' moving window is exact, as Interlock's sliding
window is; the others weigh the counts of two windows, and are shown for what that saves.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import NamedTuple

import limits.aio
import redis
import throttled.asyncio

from interlock import AsyncInterlock, Interlock
from interlock.protocol.limits import Algorithm, checked
from interlock.stores.redis.commands import Commands, script
from interlock.stores.redis.layout import Layout

from .bench import Bench
from .cores import apart, together
from .tables import Row, Table, at_least, at_most
from .timing import Timings, alternate, quietest
from .wire import Wire, pack

ROUNDS = 100
BLOCK = 30
TASKS = 100
EACH = 5  # decisions of each task, in one block
ASYNC_ROUNDS = 15
FILE_ROUNDS = 30
FILE_BLOCK = 300
DAY = 86400
OURS = "Interlock"
INCR = "redis-py incr()"
BARE = "bare socket, the same EVALSHA"
CEILING = f"bare socket, {TASKS} EVALSHA a packet"
STEP = "one bare transaction"


class Quota(NamedTuple):
    limit: int
    per: int


# So high that every call is let through. The sliding window is so short that calls leave it while others
# come, and the bucket so slow that there is always something in it.
WIDE: dict[Algorithm, Quota] = {
    "fixed-window": Quota(1_000_000, 60),
    "sliding-window": Quota(1_000_000, 1),
    "gcra": Quota(1_000_000, 3600),
}
NARROW = Quota(1, DAY)
KEPT = Quota(100, DAY)

Ask = Callable[[], object]
AsyncAsk = Callable[[int], Awaitable[object]]  # told which task asks; each has a scope of its own
Rates = dict[str, list[float]]  # decisions per second, by round


class Contender(NamedTuple):
    """Two makers: each connects to one place and answers a function that asks one limit there."""

    make: Callable[[str, str, Quota], Ask]
    make_async: Callable[[str, str, Quota], AsyncAsk]
    same: bool = True  # as exact as Interlock's


def _interlock(algorithm: Algorithm) -> Contender:
    def make(url: str, scope: str, quota: Quota) -> Ask:
        il = Interlock(url)
        return lambda: il.limit(scope, limit=quota.limit, per=quota.per, algorithm=algorithm)

    def make_async(url: str, scope: str, quota: Quota) -> AsyncAsk:
        il = AsyncInterlock(url)
        return lambda task: il.limit(f"{scope}-{task}", limit=quota.limit, per=quota.per, algorithm=algorithm)

    return Contender(make, make_async)


def _limits(strategy: str, same: bool = True) -> Contender:
    def make(url: str, scope: str, quota: Quota) -> Ask:
        limiter = limits.strategies.STRATEGIES[strategy](limits.storage.RedisStorage(url))
        item = limits.RateLimitItemPerSecond(*quota)
        return lambda: limiter.hit(item, scope)

    def make_async(url: str, scope: str, quota: Quota) -> AsyncAsk:
        # It is faster over redis-py than over coredis, which it takes unless it is told.
        storage = limits.aio.storage.RedisStorage(f"async+{url}", implementation="redispy")
        limiter = limits.aio.strategies.STRATEGIES[strategy](storage)
        item = limits.RateLimitItemPerSecond(*quota)
        return lambda task: limiter.hit(item, f"{scope}-{task}")

    return Contender(make, make_async, same)


def _throttled(algorithm: str, same: bool = True) -> Contender:
    def make(url: str, scope: str, quota: Quota) -> Ask:
        store = throttled.RedisStore(server=url)
        limiter = throttled.Throttled(using=algorithm, quota=_throttled_quota(quota), store=store)
        return lambda: limiter.limit(scope)

    def make_async(url: str, scope: str, quota: Quota) -> AsyncAsk:
        store = throttled.asyncio.RedisStore(server=url)
        limiter = throttled.asyncio.Throttled(using=algorithm, quota=_throttled_quota(quota), store=store)
        return lambda task: limiter.limit(f"{scope}-{task}")

    return Contender(make, make_async, same)


def _throttled_quota(quota: Quota) -> throttled.rate_limiter.Quota:
    return throttled.per_duration(timedelta(seconds=quota.per), quota.limit)


CONTENDERS: dict[Algorithm, dict[str, Contender]] = {
    "fixed-window": {
        "limits FixedWindow": _limits("fixed-window"),
        "throttled fixed_window": _throttled("fixed_window"),
        OURS: _interlock("fixed-window"),
    },
    "sliding-window": {
        "limits MovingWindow": _limits("moving-window"),
        "limits SlidingWindowCounter, approximate": _limits("sliding-window-counter", same=False),
        "throttled sliding_window, approximate": _throttled("sliding_window", same=False),
        OURS: _interlock("sliding-window"),
    },
    "gcra": {
        "throttled gcra": _throttled("gcra"),
        OURS: _interlock("gcra"),
    },
}


def _equals(algorithm: Algorithm) -> list[str]:
    """The peers with the same algorithm."""
    return [name for name, one in CONTENDERS[algorithm].items() if one.same and name != OURS]


def _packet(algorithm: Algorithm, scope: str, quota: Quota) -> bytes:
    ask, _ = checked(scope, 0, limit=quota.limit, per=quota.per, algorithm=algorithm)
    return pack(Commands(Layout(), 0, 0).encode(ask))


def _load_scripts(bench: Bench) -> None:
    wire = Wire(bench.redis.port)
    for algorithm in CONTENDERS:
        wire.command("SCRIPT", "LOAD", script(f"limit_{algorithm}")[0])
    wire.close()


# ---------------------------------------------------------------- one at a time


def _incr(bench: Bench) -> Ask:
    client = redis.Redis.from_url(bench.redis.url)
    return lambda: client.incr("benchmark")


def _bare(bench: Bench, algorithm: Algorithm) -> Ask:
    wire, packet = Wire(bench.redis.port), _packet(algorithm, f"bare-{algorithm}", WIDE[algorithm])
    return lambda: wire.call(packet)


def _compared(took: Timings, algorithm: Algorithm, name: str, limit: float) -> list[Row]:
    quiet, every = took.ratio(OURS, name), took.ratio_of_all(OURS, name)
    return [
        Row(f"{algorithm}: Interlock to {name}", quiet, "times", None, at_most(quiet, limit, "times")),
        Row("  the same, all rounds", every, "times", None, at_most(every, limit, "times")),
    ]


def _one_at_a_time(bench: Bench, algorithm: Algorithm) -> list[Row]:
    asks = {INCR: _incr(bench), BARE: _bare(bench, algorithm)}
    for name, one in CONTENDERS[algorithm].items():
        asks[name] = one.make(bench.redis.url, f"sync-{algorithm}", WIDE[algorithm])
    with apart(bench.redis.pid):
        took = alternate(asks, ROUNDS, BLOCK)
    with together(bench.redis.pid):
        close = alternate(asks, ROUNDS // 3, BLOCK)
    faster = min(_equals(algorithm), key=lambda name: took.ratio(name, INCR))
    words = f"{algorithm}: {{}}, p50, server on our core"
    return [
        *(Row(f"{algorithm}: {name}, p50", took.p50(name), "µs", took.ratio(name, INCR)) for name in asks),
        *_compared(took, algorithm, INCR, 1.15),
        *_compared(took, algorithm, faster, 1.0),
        *(
            Row(words.format(name), close.p50(name), "µs", close.ratio(name, INCR))
            for name in (INCR, BARE, faster, OURS)
        ),
    ]


def _denied(bench: Bench) -> list[Row]:
    asks = {INCR: _incr(bench)}
    for algorithm, contenders in CONTENDERS.items():
        for name, one in contenders.items():
            asks[f"{algorithm}, denied: {name}"] = one.make(bench.redis.url, f"denied-{algorithm}", NARROW)
    with apart(bench.redis.pid):
        took = alternate(asks, ROUNDS // 3, BLOCK)
    return [Row(f"{name}, p50", took.p50(name), "µs", took.ratio(name, INCR)) for name in list(asks)[1:]]


# ---------------------------------------------------------------- many, one after the other


def _calm(rates: Rates) -> list[int]:
    return quietest([sum(1 / rate for rate in round) for round in zip(*rates.values(), strict=True)])


async def _of_tasks(ask: AsyncAsk) -> float:
    async def task(number: int) -> None:
        for _ in range(EACH):
            await ask(number)

    start = time.perf_counter()
    await asyncio.gather(*(task(number) for number in range(TASKS)))
    return TASKS * EACH / (time.perf_counter() - start)


def _of_packets(wire: Wire, packets: list[bytes]) -> float:
    start = time.perf_counter()
    for _ in range(EACH):
        wire.call_many(packets)
    return TASKS * EACH / (time.perf_counter() - start)


async def _take_turns(bench: Bench, algorithm: Algorithm) -> Rates:
    wire, quota = Wire(bench.redis.port), WIDE[algorithm]
    packets = [_packet(algorithm, f"packed-{algorithm}-{number}", quota) for number in range(TASKS)]
    asks = {
        name: CONTENDERS[algorithm][name].make_async(bench.redis.url, f"async-{algorithm}", quota)
        for name in (*_equals(algorithm), OURS)
    }
    rates: Rates = {name: [] for name in (*asks, CEILING)}
    order = list(asks.items())
    for _, ask in order:  # connections, caches and scripts
        await _of_tasks(ask)
    for _ in range(ASYNC_ROUNDS):
        order.reverse()
        for name, ask in order:
            rates[name].append(await _of_tasks(ask))
        rates[CEILING].append(_of_packets(wire, packets))
    wire.close()
    return rates


def _asynchronous(bench: Bench, algorithm: Algorithm) -> list[Row]:
    with apart(bench.redis.pid):
        rates = asyncio.run(_take_turns(bench, algorithm))
    calm = _calm(rates)
    typical = {name: median(mine[turn] for turn in calm) for name, mine in rates.items()}
    faster = max(_equals(algorithm), key=typical.__getitem__)
    words = f"{algorithm}, {TASKS} tasks"
    times = [mine / theirs for mine, theirs in zip(rates[OURS], rates[faster], strict=True)]
    quiet, every = median(times[turn] for turn in calm), median(times)
    return [
        *(Row(f"{words}: {name}", rate, "decisions/s") for name, rate in typical.items()),
        Row(f"{words}: Interlock to {faster}", quiet, "times", None, at_least(quiet, 3, "times")),
        Row("  the same, all rounds", every, "times", None, at_least(every, 3, "times")),
    ]


def _transaction(file: Path) -> Ask:
    """The least that one durable step costs."""
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("CREATE TABLE windows (scope TEXT PRIMARY KEY, used INTEGER) WITHOUT ROWID")
    db.execute("INSERT INTO windows VALUES ('alone', 0)")

    def step() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE windows SET used = used + 1 WHERE scope = 'alone'")
        db.execute("COMMIT")

    return step


def _of_one(ask: Ask) -> float:
    start = time.perf_counter()
    for _ in range(FILE_BLOCK):
        ask()
    return FILE_BLOCK / (time.perf_counter() - start)


def _local_file(bench: Bench) -> list[Row]:
    asks = {STEP: _transaction(bench.folder / "bare-limits.db")}
    for algorithm, contenders in CONTENDERS.items():
        asks[algorithm] = contenders[OURS].make(bench.file_url, "alone", WIDE[algorithm])
    rates: Rates = {name: [] for name in asks}
    for _ in range(FILE_ROUNDS):
        for name, ask in asks.items():
            rates[name].append(_of_one(ask))
    calm, rows = _calm(rates), []
    for name, mine in rates.items():
        quiet, every = median(mine[turn] for turn in calm), median(mine)
        for words, rate in ((f"local file: {name}", quiet), ("  the same, all rounds", every)):
            target = None if name == STEP else at_least(rate, 10_000, "decisions/s")
            rows.append(Row(words, rate, "decisions/s", None, target))
    return rows


# ---------------------------------------------------------------- what is kept of them


def _bytes_of(client: redis.Redis, scope: str) -> int:
    keys = client.scan_iter(match=f"*{scope}*", count=10_000)
    return sum(client.memory_usage(key, samples=0) or 0 for key in keys)


def _memory(bench: Bench) -> list[Row]:
    rows = []
    with redis.Redis.from_url(bench.redis.url) as client:
        for algorithm, contenders in CONTENDERS.items():
            for name, one in contenders.items():
                client.flushdb()  # two strategies of a peer may call a scope's key the same
                ask = one.make(bench.redis.url, "vendor-api", KEPT)
                for calls in range(1, KEPT.limit + 1):
                    ask()
                    if calls in (10, 100):
                        words = f"{algorithm}, Redis memory after {calls} calls: {name}"
                        rows.append(Row(words, _bytes_of(client, "vendor-api"), "bytes"))
    return rows


def measure(bench: Bench) -> Table:
    _load_scripts(bench)
    rows = [row for algorithm in CONTENDERS for row in _one_at_a_time(bench, algorithm)]
    rows += _denied(bench)
    rows += [row for algorithm in CONTENDERS for row in _asynchronous(bench, algorithm)]
    rows += _local_file(bench)
    rows += _memory(bench)
    title = (
        f"7. Rate limits ({ROUNDS} rounds of {BLOCK}; {TASKS} tasks, {ASYNC_ROUNDS} rounds of {TASKS * EACH})"
    )
    return Table(title, "incr()", rows)
