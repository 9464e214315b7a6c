"""The local store: alone, between processes, and asleep."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from . import contenders
from .bench import Bench
from .idle import SECONDS, idle_shares
from .tables import Row, Table, at_most
from .timing import alternate, percentile
from .turns import HOLDS, PROCESSES, evaluate, take_turns

ROUNDS = 200
BLOCK = 50
OURS = "Interlock"
FILELOCK = "filelock.FileLock"
KEPT = "filelock.FileLock, one object for all"
BARE = "two bare transactions"


def _holding(locks: contenders.Locks) -> Callable[[], None]:
    def pair() -> None:
        with locks("alone"):
            pass

    return pair


def _bare(file: Path) -> Callable[[], None]:
    """The least that two durable steps cost: a row comes, the row goes."""
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("CREATE TABLE leases (scope TEXT PRIMARY KEY, holder TEXT) WITHOUT ROWID")

    def pair() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO leases VALUES ('alone', 'me')")
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM leases WHERE scope = 'alone'")
        db.execute("COMMIT")

    return pair


def _uncontended(bench: Bench) -> list[Row]:
    kept = contenders.file_lock(str(bench.folder))("kept")
    took = alternate(
        {
            FILELOCK: _holding(contenders.file_lock(str(bench.folder))),
            KEPT: _holding(lambda name: kept),
            BARE: _bare(bench.folder / "bare.db"),
            OURS: _holding(contenders.interlock(bench.file_url)),
        },
        ROUNDS,
        BLOCK,
    )
    rows = []
    for name in (FILELOCK, KEPT, BARE, OURS):
        times = took.ratio(name, FILELOCK)
        rows.append(Row(f"acquire + release: {name}, p50", took.p50(name), "µs", times))
        rows.append(Row(f"acquire + release: {name}, p99", took.p99(name), "µs"))
    for name in (FILELOCK, KEPT):
        quiet, every = took.ratio(OURS, name), took.ratio_of_all(OURS, name)
        rows.append(Row(f"Interlock to {name}", quiet, "times", None, at_most(quiet, 1.0, "times")))
        rows.append(Row("  the same, all rounds", every, "times", None, at_most(every, 1.0, "times")))
    rows.append(Row(f"Interlock to {BARE}", took.ratio(OURS, BARE), "times"))
    return rows


def _handover(bench: Bench) -> list[Row]:
    places = {
        FILELOCK: (contenders.file_lock, str(bench.folder)),
        OURS: (contenders.interlock, bench.file_url),
    }
    turns = {name: evaluate(take_turns(make, place)) for name, (make, place) in places.items()}
    reference = percentile(turns[FILELOCK].gaps, 50)
    rows = []
    for name, seen in turns.items():
        p50, p99 = (percentile(seen.gaps, share) for share in (50, 99))
        target = at_most(p50 / 1e6, 2, "ms") if name == OURS else None
        share = 100 * seen.changed / seen.contested
        rows += [
            Row(f"hand-over: {name}, gap p50", p50 / 1000, "µs", p50 / reference, target),
            Row(f"hand-over: {name}, gap p99", p99 / 1000, "µs"),
            Row(f"hand-over: {name}, holder changed ({seen.changed} of {seen.contested})", share, "%"),
            Row(f"hand-over: {name}, two at once", seen.overlaps, "times"),
        ]
    return rows


def _idle(bench: Bench) -> list[Row]:
    shares = idle_shares(
        {
            "Interlock, local file": (contenders.interlock, bench.file_url),
            "Interlock, Redis": (contenders.interlock, bench.redis.url),
            FILELOCK: (contenders.file_lock, str(bench.folder)),
            "redis-py Lock": (contenders.redis_py, bench.redis.url),
        }
    )
    return [
        Row(
            f"idle waiter, {SECONDS} s: {name}",
            share,
            "% CPU",
            share / shares[FILELOCK],
            at_most(share, 0.5, "% of a core") if name.startswith("Interlock") else None,
        )
        for name, share in shares.items()
    ]


def measure(bench: Bench) -> Table:
    title = f"6. Local file ({ROUNDS} rounds of {BLOCK}; {PROCESSES} processes, {HOLDS} holds each of 2 ms)"
    return Table(title, "filelock", [*_uncontended(bench), *_handover(bench), *_idle(bench)])
