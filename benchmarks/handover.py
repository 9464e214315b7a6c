"""Eight processes that want one scope: how long nobody holds it between two holds, and who gets it next."""

from __future__ import annotations

from collections.abc import Callable

from . import contenders
from .bench import Bench
from .cores import apart
from .floor import bare, unconfirmed
from .tables import Row, Table, Target, at_most
from .timing import percentile
from .turns import HOLD, HOLDS, PROCESSES, Turns, evaluate, take_turns
from .wire import ping_ns

ROUNDS = 3
OURS = "Interlock"
BARE = "bare sockets, the same scripts"
UNCONFIRMED = "bare sockets, one message and no claim"

CONTENDERS: dict[str, Callable[[str], contenders.Locks]] = {
    OURS: contenders.interlock,
    BARE: bare,
    UNCONFIRMED: unconfirmed,
    "redis-py Lock, sleep 0.1": contenders.redis_py,
    "redis-py Lock, sleep 0.001": contenders.redis_py_eager,
    "python-redis-lock": contenders.python_redis_lock,
}


def _merged(runs: list[Turns]) -> Turns:
    gaps, between_two = ([gap for run in runs for gap in run[field]] for field in (0, 1))
    changed, contested, overlaps = (sum(run[field] for run in runs) for field in (2, 3, 4))
    return Turns(gaps, between_two, changed, contested, overlaps)


def _rows(name: str, turns: Turns, ping: float, floor: float) -> list[Row]:
    p50, p99 = percentile(turns.gaps, 50), percentile(turns.gaps, 99)
    to_another = percentile(turns.gaps_between_two, 50)
    share = 100 * turns.changed / turns.contested
    of = f"{turns.changed} of {turns.contested}"
    judged: list[Target | None] = [None] * 4
    if name == OURS:
        judged = [
            at_most(p50 / ping, 3, "round trips"),
            at_most(p99 / 1e6, 2, "ms"),
            Target("always", turns.changed == turns.contested),
            Target("never", turns.overlaps == 0),
        ]
    rows = [
        Row(f"{name}: gap, p50", p50 / 1000, "µs", p50 / ping, judged[0]),
        Row(f"{name}: gap, p99", p99 / 1000, "µs", p99 / ping, judged[1]),
        Row(f"{name}: gap to another process, p50", to_another / 1000, "µs", to_another / ping),
        Row(f"{name}: holder changed while others waited ({of})", share, "%", None, judged[2]),
        Row(f"{name}: two at once", turns.overlaps, "times", None, judged[3]),
    ]
    if name == OURS:
        rows.append(Row(f"{name}: gap p50 to that of bare sockets", p50 / floor, "times"))
    return rows


def measure(bench: Bench) -> Table:
    runs: dict[str, list[Turns]] = {name: [] for name in CONTENDERS}
    for _ in range(ROUNDS):
        for name, make in CONTENDERS.items():
            runs[name].append(evaluate(take_turns(make, bench.redis.url)))
    with apart(bench.redis.pid):
        ping = percentile(ping_ns(bench.redis.port, 5000), 50)
        cold = percentile(ping_ns(bench.redis.port, 500, pause=HOLD), 50)
    merged = {name: _merged(parts) for name, parts in runs.items()}
    floor = percentile(merged[BARE].gaps, 50)
    rows = [
        Row("PING, p50", ping / 1000, "µs", 1.0),
        Row("PING after 2 ms of silence, p50", cold / 1000, "µs", cold / ping),
    ]
    for name, turns in merged.items():
        rows += _rows(name, turns, ping, floor)
    title = f"3. Hand-over: {PROCESSES} processes, {HOLDS} holds each of {HOLD * 1000:.0f} ms, {ROUNDS} runs"
    return Table(title, "PING", rows)
