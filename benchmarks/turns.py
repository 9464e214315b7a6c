"""Processes that take turns at one name, and what their holds show: gaps, changes of holder, overlaps."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from .contenders import Locks

PROCESSES = 8
HOLDS = 50  # of each process
HOLD = 0.002
LIMIT = 60  # seconds; until then all of them must be through

# Whoever asked this long before a hold ended was waiting when it did, and not merely on the way.
SURELY_WAITING = 1_000_000


class Hold(NamedTuple):
    """Nanoseconds of CLOCK_MONOTONIC, which all processes of one machine share."""

    begin: int
    end: int
    asked: int
    pid: int


class Turns(NamedTuple):
    gaps: list[int]
    gaps_between_two: list[int]  # where the next holder is another process
    changed: int  # of those gaps in which somebody else was waiting
    contested: int
    overlaps: int


def _work(make: Callable[[str], Locks], place: str, gate: Any, results: Any) -> None:
    locks, clock, me, holds = make(place), time.monotonic_ns, os.getpid(), []
    gate.wait(LIMIT)
    for _ in range(2):  # the second time all of them have to wait, and so have opened what they wait with
        with locks("warm-up"):
            time.sleep(HOLD)
    gate.wait(LIMIT)
    for _ in range(HOLDS):
        asked = clock()
        with locks("turns"):
            begin = clock()
            time.sleep(HOLD)
            end = clock()
        holds.append(Hold(begin, end, asked, me))
    gate.wait(LIMIT)  # a process that ends takes milliseconds of a core from those that still take turns
    results.put(holds)


def take_turns(make: Callable[[str], Locks], place: str) -> list[Hold]:
    """All holds of all processes, in order."""
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(PROCESSES), context.Queue()
    workers = [
        context.Process(target=_work, args=(make, place, gate, results), daemon=True)
        for _ in range(PROCESSES)
    ]
    try:
        for worker in workers:
            worker.start()
        return sorted(hold for _ in workers for hold in results.get(timeout=LIMIT))
    finally:
        for worker in workers:
            worker.join(1)
            if worker.is_alive():
                worker.kill()


def evaluate(holds: list[Hold]) -> Turns:
    gaps, between_two, changed, contested, overlaps = [], [], 0, 0, 0
    for i, (before, after) in enumerate(pairwise(holds)):
        gaps.append(after.begin - before.end)
        if after.pid != before.pid:
            between_two.append(gaps[-1])
        overlaps += after.begin < before.end
        others = [hold for hold in holds[i + 1 :] if hold.pid != before.pid]
        if any(hold.asked < before.end - SURELY_WAITING for hold in others):
            contested += 1
            changed += after.pid != before.pid
    return Turns(gaps, between_two, changed, contested, overlaps)
