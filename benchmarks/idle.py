"""How much processor time a process takes that waits for a lock somebody else holds."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from contextlib import ExitStack

from .contenders import Locks

SECONDS = 10


def _wait(make: Callable[[str], Locks], place: str) -> None:
    with make(place)("idle"):
        raise AssertionError("it was never given up")


def _cpu_seconds(pid: int) -> float:
    """All threads, in nanoseconds; /proc/<pid>/stat only counts whole hundredths of a second."""
    return time.clock_gettime((~pid << 3) | 2)  # the kernel's clock of another process


def idle_shares(contenders: dict[str, tuple[Callable[[str], Locks], str]]) -> dict[str, float]:
    """Percent of a core, by contender; this process holds what the others wait for."""
    context = multiprocessing.get_context("spawn")
    waiters = {}
    with ExitStack() as holding:
        for name, (make, place) in contenders.items():
            holding.enter_context(make(place)("idle"))
            waiters[name] = context.Process(target=_wait, args=(make, place), daemon=True)
            waiters[name].start()
        try:
            time.sleep(3)  # until all of them have imported, connected and queued
            before = {name: _cpu_seconds(waiter.pid or 0) for name, waiter in waiters.items()}
            time.sleep(SECONDS)
            after = {name: _cpu_seconds(waiter.pid or 0) for name, waiter in waiters.items()}
            assert all(waiter.is_alive() for waiter in waiters.values())
        finally:
            for waiter in waiters.values():
                waiter.kill()
                waiter.join()
    return {name: 100 * (after[name] - before[name]) / SECONDS for name in contenders}
