"""How soon a waiter has the scope after something else than a release frees it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import redis

from interlock import Interlock

from .bench import Bench
from .tables import Row, Table, at_most
from .timing import percentile

TRIES = 30
SETTLE = 0.1  # seconds; what becoming the first in line costs is over by then
LIMIT = 50  # ms
SCOPE = "waking"
KEYS = (f"n8n-lock-{SCOPE}", f"n8n-lock-{SCOPE}:meta")

Free = Callable[[], float]  # frees the scope; answers when that was, in seconds of CLOCK_MONOTONIC


def _wait(url: str, pipe: Connection) -> None:
    il = Interlock(url)
    while pipe.recv():
        lease = il.acquire(SCOPE, wait=60)
        pipe.send(time.monotonic())
        lease.release()


def _hold(url: str, pipe: Connection) -> None:
    with Interlock(url).lock(SCOPE):
        pipe.send(True)
        time.sleep(60)


def _times(url: str, take: Callable[[], Free]) -> list[int]:
    """Nanoseconds from the moment at which the scope is free to the grant in another process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    waiter = context.Process(target=_wait, args=(url, theirs), daemon=True)
    waiter.start()
    il, times = Interlock(url), []
    try:
        while len(times) < TRIES:
            free = take()
            ours.send(True)
            while not (il.show(SCOPE).waiting or ours.poll()):
                time.sleep(0.01)
            time.sleep(SETTLE)
            if not ours.poll():  # else the hold has ended before the waiter came: the machine is slow
                freed = free()
                times.append(round((ours.recv() - freed) * 1e9))
            else:
                ours.recv()
            while il.show(SCOPE).held:
                time.sleep(0.01)
        ours.send(False)
        waiter.join(5)
    finally:
        waiter.kill()
        il.close()
    return times


def _foreign(client: redis.Redis, lasts: int) -> None:
    """As n8n's sub-workflows leave it when they hold the scope."""
    client.set(KEYS[0], 1, px=lasts)
    client.set(KEYS[1], '{"lock_id":"n8n","execution_id":"77"}', px=lasts)


def _deleted(client: redis.Redis) -> Callable[[], Free]:
    def free() -> float:
        client.delete(KEYS[0])
        freed = time.monotonic()
        client.delete(KEYS[1])
        return freed

    def take() -> Free:
        _foreign(client, 600_000)
        return free

    return take


def _counter_deleted(client: redis.Redis) -> Callable[[], Free]:
    def free() -> float:
        freed = time.monotonic()
        client.delete(KEYS[0])
        return freed

    def take() -> Free:
        client.set(KEYS[0], 1, px=600_000)
        return free

    return take


def _foreign_expires(client: redis.Redis) -> Callable[[], Free]:
    def take() -> Free:
        _foreign(client, 400)
        return lambda: time.monotonic() + client.pttl(KEYS[1]) / 1000

    return take


def _lease_expires(url: str) -> Callable[[], Free]:
    il = Interlock(url)

    def free() -> float:
        left = il.show(SCOPE).holders[0].expires_in
        assert left is not None
        return time.monotonic() + left

    def take() -> Free:
        il.acquire(SCOPE, ttl=0.4)
        return free

    return take


def _holder_killed(url: str) -> Callable[[], Free]:
    context = multiprocessing.get_context("spawn")

    def take() -> Free:
        ours, theirs = context.Pipe()
        holder = context.Process(target=_hold, args=(url, theirs), daemon=True)
        holder.start()
        ours.recv()

        def free() -> float:
            killed = time.monotonic()
            os.kill(holder.pid or 0, signal.SIGKILL)
            return killed

        return free

    return take


def measure(bench: Bench) -> Table:
    with redis.Redis.from_url(bench.redis.url) as client:
        cases = {
            "Redis: foreign DEL of counter, then sidecar": (bench.redis.url, _deleted(client)),
            "Redis: foreign DEL of a bare counter": (bench.redis.url, _counter_deleted(client)),
            "Redis: a foreign hold expires": (bench.redis.url, _foreign_expires(client)),
            "Redis: a lease expires": (bench.redis.url, _lease_expires(bench.redis.url)),
            "local file: a lease expires": (bench.file_url, _lease_expires(bench.file_url)),
            "local file: the holder is killed": (bench.file_url, _holder_killed(bench.file_url)),
        }
        rows = []
        for name, (url, take) in cases.items():
            times = _times(url, take)
            most = max(times) / 1e6
            rows.append(Row(f"{name}, p50", percentile(times, 50) / 1e6, "ms"))
            rows.append(Row(f"{name}, longest of {TRIES}", most, "ms", None, at_most(most, LIMIT, "ms")))
    return Table("4. Waking: from the moment the scope is free to the grant in another process", "", rows)
