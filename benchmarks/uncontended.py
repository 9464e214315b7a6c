"""Acquire and release of a scope that nobody else wants, from one thread, over Redis."""

from __future__ import annotations

from collections.abc import Callable

import redis

from . import contenders
from .bench import Bench
from .cores import apart, together
from .tables import Row, Table, at_most
from .timing import alternate
from .wire import Speaker, Wire, pack

ROUNDS = 300
BLOCK = 50
OURS = "Interlock"
PEER = "redis-py Lock"
BARE = "bare socket, the same two EVALSHA"


def _bare(bench: Bench) -> Callable[[], None]:
    wire, speaker = Wire(bench.redis.port), Speaker()
    wire.load_scripts()
    acquire = pack(speaker.acquire("bare", "7b0c5e0e-6f0c-4f3e-9a55-0e5a1f0b9a11"))
    release = pack(speaker.release("bare", "7b0c5e0e-6f0c-4f3e-9a55-0e5a1f0b9a11"))

    def pair() -> None:
        assert wire.call(acquire)[0] == 1
        assert wire.call(release)[0] == 1

    return pair


def _evalsha(bench: Bench) -> Callable[[], None]:
    client, speaker = redis.Redis.from_url(bench.redis.url), Speaker()
    acquire = speaker.acquire("evalsha", "7b0c5e0e-6f0c-4f3e-9a55-0e5a1f0b9a11")[1:]
    release = speaker.release("evalsha", "7b0c5e0e-6f0c-4f3e-9a55-0e5a1f0b9a11")[1:]

    def pair() -> None:
        client.evalsha(*acquire)
        client.evalsha(*release)

    return pair


def _holding(locks: contenders.Locks) -> Callable[[], None]:
    def pair() -> None:
        with locks("uncontended"):
            pass

    return pair


def measure(bench: Bench) -> Table:
    url, server = bench.redis.url, bench.redis.pid
    pairs = {
        BARE: _bare(bench),
        "redis-py, the same two evalsha()": _evalsha(bench),
        PEER: _holding(contenders.redis_py(url)),
        "python-redis-lock": _holding(contenders.python_redis_lock(url)),
        OURS: _holding(contenders.interlock(url)),
    }
    with apart(server):
        took = alternate(pairs, ROUNDS, BLOCK)
    with together(server):
        close = alternate(pairs, ROUNDS // 3, BLOCK)

    rows = []
    for name in pairs:
        to_bare = took.ratio(name, BARE)
        rows.append(Row(f"{name}, p50", took.p50(name), "µs", to_bare))
    for name, limit in ((BARE, 1.3), (PEER, 1.0)):
        quiet, every = took.ratio(OURS, name), took.ratio_of_all(OURS, name)
        rows.append(Row(f"Interlock to {name}", quiet, "times", None, at_most(quiet, limit, "times")))
        rows.append(Row("  the same, all rounds", every, "times", None, at_most(every, limit, "times")))
    for name in (BARE, PEER, OURS):
        rows.append(Row(f"{name}, p99", took.p99(name), "µs", took.p99(name) / took.p99(BARE)))
    for name in (BARE, PEER, OURS):
        rows.append(
            Row(f"{name}, p50, server on our core", close.p50(name), "µs", close.ratio(name, BARE)),
        )
    title = f"1. Uncontended acquire + release, sync, Redis on another core ({ROUNDS} rounds of {BLOCK})"
    return Table(title, "bare", rows)
