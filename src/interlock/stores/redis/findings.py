"""What `interlock doctor` says of a Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from ..base import OK, WARNING, Finding

CLOCKS_APART = 2.0  # seconds
Ask = Callable[..., Any]  # sends a command; None if it is refused


def examine(ask: Ask) -> Iterator[Finding]:
    facts = _info(ask)
    if facts is None:
        yield Finding("server", WARNING, "its settings can't be looked at without the right to INFO")
    else:
        yield from _server(facts)
    yield _clock(ask)
    tracks = ask("CLIENT", "TRACKING", "ON", "NOLOOP") is not None
    if tracks:
        ask("CLIENT", "TRACKING", "OFF")
        yield Finding("waking", OK, "waiters are told when foreign clients free a scope")
    else:
        yield Finding("waking", WARNING, "waiters look every second: the right to CLIENT TRACKING is missing")


def _info(ask: Ask) -> dict[str, str] | None:
    reply = ask("INFO")
    if reply is None:
        return None
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _server(facts: dict[str, str]) -> Iterator[Finding]:
    kind = facts.get("server_name", "redis")
    number = facts.get("valkey_version") or facts.get("redis_version", "of unknown version")
    yield Finding("server", OK, f"{kind} {number}, {facts.get('role', 'unknown role')}")
    policy, limit = facts.get("maxmemory_policy", "noeviction"), int(facts.get("maxmemory", 0))
    if policy == "noeviction":
        yield Finding("eviction", OK, policy)
    else:
        why = "an evicted lock is a lost lock; set maxmemory-policy noeviction"
        risk = "" if limit else " (harmless while there is no maxmemory)"
        yield Finding("eviction", WARNING, f"{policy}: {why}{risk}")
    if facts.get("aof_enabled") == "1":
        yield Finding("persistence", OK, "append-only file")
    else:
        yield Finding(
            "persistence", WARNING, "no append-only file: a restart forgets leases; fences go on growing"
        )


def _clock(ask: Ask) -> Finding:
    before = time.time()
    seconds, micros = ask("TIME")
    after = time.time()
    there = int(seconds) + int(micros) / 1e6
    apart = max(before - there, there - after, 0.0)
    if apart > CLOCKS_APART:
        return Finding("clock", WARNING, f"{apart:.0f} s from this machine's; leases go by the server's")
    return Finding("clock", OK, "the same as this machine's")
