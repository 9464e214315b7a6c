"""Rate limits on a local file: what the scripts limit_*.lua and refund_*.lua do on Redis."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable
from functools import lru_cache

from ... import machine
from ...model import LimitInUse
from ..base import LOOK, Limit, Once, Refund, Reset, Ruling, Used


class Limits:
    """For one operation, inside its transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def sweep(self) -> None:
        """Clear away what matters to nobody any more."""
        boot = machine.boot_id()
        for table in ("levels", "passes", "windows", "vacancies"):
            self._db.execute(f"DELETE FROM {table} WHERE substr(name, 1, ?) != ?", (len(boot), boot))
        for kind in (_Gcra, _SlidingWindow, _FixedWindow):
            now = kind.clock()
            self._db.execute(f"DELETE FROM {kind.table} WHERE ends <= ?", (now,))
            of_kind = f"\n{kind.algorithm}-"
            self._db.execute("DELETE FROM vacancies WHERE slot <= ? AND instr(name, ?)", (now, of_kind))

    def ask(self, op: Limit) -> Ruling:
        return _KINDS[op.algorithm](self._db, op).ask()

    def once(self, op: Once) -> bool:
        now = _Gcra.clock()
        first = self._db.execute(
            "INSERT INTO levels VALUES (?, 1, ?, ?)"
            " ON CONFLICT DO UPDATE SET at = excluded.at, ends = excluded.ends"
            " WHERE ends <= excluded.at RETURNING 1",
            (f"{machine.boot_id()}\n{op.key}\nonce", now, now + op.per * 1000),
        )
        return first.fetchone() is not None

    def refund(self, op: Refund) -> bool:
        kind = _KINDS[op.of.algorithm](self._db, op.of)
        return op.slot > kind.now and kind.refund(op.slot)

    def reset(self, op: Reset) -> bool:
        name = _name(op.scope, op.algorithm, op.per)
        gone = 0
        for table in ("levels", "passes", "windows", "vacancies"):
            gone += self._db.execute(f"DELETE FROM {table} WHERE name = ?", (name,)).rowcount
        return gone > 0

    def in_use(self) -> list[tuple[str, str, int]]:
        """Scope, algorithm and `per` of each."""
        names = self._db.execute(
            "SELECT name FROM levels UNION SELECT name FROM passes UNION SELECT name FROM windows"
        )
        return [found for (name,) in names if (found := _named(name)) is not None]

    def used(self, op: Used) -> LimitInUse | None:
        kind = _KINDS[op.algorithm](self._db, Limit(op.scope, op.algorithm, 1, op.which, 1, 1, LOOK))
        used, ends = kind.used()
        if used <= 0:
            return None
        reset_at = kind.today + (ends - kind.now) / 1e6
        return LimitInUse(
            scope=op.scope, algorithm=op.algorithm, per=op.which / 1000, used=used, reset_at=reset_at
        )


@lru_cache(maxsize=1024)
def _name(scope: str, algorithm: str, per: int) -> str:
    return f"{machine.boot_id()}\n{scope}\n{algorithm}-{per}"


def _named(name: str) -> tuple[str, str, int] | None:
    """What `_name` was made of; None for what is no limit, or was one before the machine started."""
    boot, scope, which = name.split("\n")
    algorithm, _, per = which.rpartition("-")
    return (scope, algorithm, int(per)) if algorithm and boot == machine.boot_id() else None


class _Kind:
    """One algorithm, for one operation. All moments are microseconds."""

    algorithm = ""
    table = ""

    def __init__(self, db: sqlite3.Connection, op: Limit) -> None:
        self.db, self.op, self.now, self.today = db, op, self.clock(), time.time()
        self.name = _name(op.scope, op.algorithm, op.per)
        self.per = op.per * 1000
        self.patience = op.patience * 1000
        self.looks_only = op.patience == LOOK
        self.spacing = min(1000, self.per // op.limit // 2)

    @staticmethod
    def clock() -> int:
        return round(machine.now() * 1e6)

    def ask(self) -> Ruling:
        raise NotImplementedError

    def refund(self, slot: int) -> bool:
        raise NotImplementedError

    def used(self) -> tuple[int, int]:
        """How much, with what is booked ahead, and when all of it is free again; the limit is not known."""
        raise NotImplementedError

    def _rule(self, allowed: bool, used: int, remaining: int, slot: int, free_at: float) -> Ruling:
        whole_at = self.today + (free_at - self.now) / 1e6
        return Ruling(allowed, used, remaining, (slot - self.now) / 1e6, whole_at, slot)

    def _take_vacancy(self, latest: int) -> int | None:
        """A moment before `latest` that somebody else has booked and does not need."""
        if self.patience <= 0:
            return None
        found = self.db.execute(
            "SELECT slot, cost FROM vacancies WHERE name = ? AND slot > ? AND slot < ? AND cost >= ?"
            " ORDER BY slot LIMIT 1",
            (self.name, self.now, latest, self.op.cost),
        ).fetchone()
        if found is None:
            return None
        slot, cost = found
        if cost > self.op.cost:
            self.db.execute(
                "UPDATE vacancies SET cost = ? WHERE name = ? AND slot = ?",
                (cost - self.op.cost, self.name, slot),
            )
        else:
            self.db.execute("DELETE FROM vacancies WHERE name = ? AND slot = ?", (self.name, slot))
        return int(slot)

    def _vacate(self, slot: int, shorten: Callable[[int, int], bool]) -> None:
        """Whoever comes later may have it; what is vacant at the end is not booked any more."""
        self.db.execute(
            "INSERT INTO vacancies VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET cost = cost + excluded.cost",
            (self.name, slot, self.op.cost),
        )
        while True:
            last = self.db.execute(
                "SELECT slot, cost FROM vacancies WHERE name = ? ORDER BY slot DESC LIMIT 1", (self.name,)
            ).fetchone()
            if last is None or not shorten(*last):
                return
            self.db.execute("DELETE FROM vacancies WHERE name = ? AND slot = ?", (self.name, last[0]))


class _Gcra(_Kind):
    """A bucket of `burst` that empties evenly; what is booked ahead stands above the brim."""

    algorithm = "gcra"
    table = "levels"

    def _level(self) -> float:
        found = self.db.execute("SELECT level, at FROM levels WHERE name = ?", (self.name,)).fetchone()
        if found is None:
            return 0.0
        level, at = found
        return max(0.0, float(level) - (self.now - int(at)) / self.unit)

    def _keep(self, level: float) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO levels VALUES (?, ?, ?, ?)",
            (self.name, level, self.now, self._full(level) + 1),
        )

    def _full(self, level: float) -> int:
        return self.now + math.ceil(level * self.unit)

    @property
    def unit(self) -> float:
        """How long one takes to run out."""
        return self.per / self.op.limit

    def ask(self) -> Ruling:
        level, cost, burst = self._level(), self.op.cost, self.op.burst
        slot = self.now + max(0, math.ceil((level + cost - burst) * self.unit - 0.01))
        remaining = max(0, math.floor(burst - level + 1e-6))
        if self.looks_only:
            return self._rule(slot == self.now, burst - remaining, remaining, slot, self._full(level))
        if slot > self.now:
            vacancy = self._take_vacancy(min(slot, self.now + self.patience))
            if vacancy is not None:
                return self._rule(True, burst, 0, vacancy, self._full(level))
            if slot - self.now > self.patience:
                return self._rule(False, burst - remaining + cost, remaining, slot, self._full(level))
        level += cost
        self._keep(level)
        remaining = max(0, math.floor(burst - level + 1e-6))
        return self._rule(True, burst - remaining, remaining, slot, self._full(level))

    def refund(self, slot: int) -> bool:
        level = self._level()
        if level <= self.op.burst:
            return False

        def shorten(at: int, cost: int) -> bool:
            nonlocal level
            if at < self.now + (level - self.op.burst) * self.unit - 1:
                return False
            level -= cost
            return True

        self._vacate(slot, shorten)
        self._keep(max(level, 0.0))
        return True

    def used(self) -> tuple[int, int]:
        row = "SELECT level, at, ends FROM levels WHERE name = ?"
        level, at, ends = self.db.execute(row, (self.name,)).fetchone() or (0.0, 0, 1)
        left = max(0.0, ends - self.now) / max(1, ends - at)  # it is empty at its end, and empties evenly
        return math.ceil(level * min(1.0, left) - 1e-6), ends


class _FixedWindow(_Kind):
    """So many in each window, numbered as n8n does, by the clock on the wall."""

    algorithm = "fixed-window"
    table = "windows"

    def __init__(self, db: sqlite3.Connection, op: Limit) -> None:
        super().__init__(db, op)
        self.window = self._window_of(self.now)

    @staticmethod
    def clock() -> int:
        return time.time_ns() // 1000

    def _window_of(self, at: int) -> int:
        return at // 1000 // self.op.per

    def _starts(self, number: int) -> int:
        return number * self.per

    def _used_in(self, number: int) -> int:
        found = self.db.execute(
            "SELECT used FROM windows WHERE name = ? AND number = ?", (self.name, number)
        ).fetchone()
        return int(found[0]) if found else 0

    def _count(self, number: int, cost: int) -> None:
        self.db.execute(
            "INSERT INTO windows VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET used = used + excluded.used",
            (self.name, number, cost, self._starts(number + 1)),
        )

    def _used(self) -> dict[int, int]:
        """From this window on; what is over is cleared away with the first call in a window."""
        found = self.db.execute(
            "SELECT number, used FROM windows WHERE name = ? AND number >= ?", (self.name, self.window)
        )
        used: dict[int, int] = dict(found.fetchall())
        if self.window not in used:
            self.db.execute("DELETE FROM windows WHERE name = ? AND number < ?", (self.name, self.window))
        return used

    def _latest(self, used: dict[int, int]) -> int:
        """The last window that was booked."""
        return max((number for number, calls in used.items() if calls > 0), default=self.window)

    def ask(self) -> Ruling:
        cost, limit, all_used = self.op.cost, self.op.limit, self._used()
        used, latest = all_used.get(self.window, 0), max(self.window, self._latest(all_used))
        remaining = max(0, 0 if latest > self.window else limit - used)
        if latest == self.window and used + cost <= limit:
            if not self.looks_only:
                self._count(self.window, cost)
                used, remaining = used + cost, remaining - cost
            return self._rule(True, used, remaining, self.now, self._starts(self.window + 1))
        vacancy = self._take_vacancy(self.now + self.patience)
        if vacancy is not None:
            self._count(self._window_of(vacancy), cost)
            return self._rule(True, limit, 0, vacancy, self._starts(latest + 1))
        first = max(latest, self.window + 1)
        before = self._used_in(first)
        if before + cost > limit:
            first, before = first + 1, 0
        slot = self._starts(first) + before * self.spacing
        if slot - self.now > self.patience:
            if not self.looks_only:
                used = max(used, limit - remaining) + cost
            return self._rule(False, used, remaining, slot, self._starts(latest + 1))
        self._count(first, cost)
        return self._rule(True, before + cost, 0, slot, self._starts(first + 1))

    def refund(self, slot: int) -> bool:
        booked = self._window_of(slot)
        if booked <= self.window or self._used_in(booked) < self.op.cost:
            return False
        self._count(booked, -self.op.cost)
        latest = max(self.window, self._latest(self._used()))
        self._vacate(slot, lambda at, cost: self._window_of(at) > latest)
        return True

    def used(self) -> tuple[int, int]:
        return self._used_in(self.window), self._starts(self.window + 1)


class _SlidingWindow(_Kind):
    """Never more than the limit in any span of `per`, ends included."""

    algorithm = "sliding-window"
    table = "passes"

    def ask(self) -> Ruling:
        cost, limit = self.op.cost, self.op.limit
        self._forget(self.now - self.per)
        total, last = self._last()
        inside = total - self._before(self.now - self.per, total)
        free_at = max(self.now, last + self.per)
        remaining = max(0, 0 if last > self.now else limit - inside)
        slot = self.now
        if last > self.now or inside + cost > limit:
            slot = max(self.now, last + self.spacing if last > self.now else 0)
            must_leave = self.db.execute(
                "SELECT at FROM passes WHERE name = ? AND total > ? ORDER BY total LIMIT 1",
                (self.name, total - (limit - cost) - 1),
            ).fetchone()
            if must_leave is not None and inside + cost > limit:
                slot = max(slot, must_leave[0] + self.per + 1)
        if self.looks_only:
            return self._rule(slot == self.now, min(inside, limit), remaining, slot, free_at)
        if slot > self.now:
            vacancy = self._take_vacancy(min(slot, self.now + self.patience))
            if vacancy is not None:
                return self._rule(True, limit, 0, vacancy, free_at)
            if slot - self.now > self.patience:
                return self._rule(False, max(inside, limit - remaining) + cost, remaining, slot, free_at)
        self.db.execute(
            "INSERT INTO passes VALUES (?, ?, ?, ?, ?)",
            (self.name, total + cost, cost, slot, slot + self.per),
        )
        inside += cost
        if slot > self.now:
            inside = total + cost - self._before(slot - self.per, total)
        return self._rule(True, inside, max(0, limit - inside), slot, slot + self.per)

    def _forget(self, edge: int) -> None:
        """What came before a moment; one is looked at more than is cleared away."""
        first = self.db.execute(
            "SELECT total, at FROM passes WHERE name = ? ORDER BY total LIMIT 100", (self.name,)
        )
        gone = None
        for total, at in first:
            if at >= edge:
                break
            gone = total
        else:
            if gone is not None:  # more of them than we have looked at
                (gone,) = self.db.execute(
                    "SELECT max(total) FROM passes WHERE name = ? AND at < ?", (self.name, edge)
                ).fetchone()
        if gone is not None:
            self.db.execute("DELETE FROM passes WHERE name = ? AND total <= ?", (self.name, gone))

    def _last(self) -> tuple[int, int]:
        """How many were ever let through, as far as it matters, and when the last of them was."""
        found = self.db.execute(
            "SELECT total, at FROM passes WHERE name = ? ORDER BY total DESC LIMIT 1", (self.name,)
        ).fetchone()
        return found or (0, -self.per)

    def _before(self, edge: int, total: int) -> int:
        """How many were let through before a moment."""
        found = self.db.execute(
            "SELECT total - cost FROM passes WHERE name = ? AND at >= ? ORDER BY total LIMIT 1",
            (self.name, edge),
        ).fetchone()
        return int(found[0]) if found else total

    def refund(self, slot: int) -> bool:
        def shorten(at: int, cost: int) -> bool:
            total, last = self._last()
            if at < last:
                return False
            row = (self.name, total)
            (there,) = self.db.execute("SELECT cost FROM passes WHERE name = ? AND total = ?", row).fetchone()
            self.db.execute("DELETE FROM passes WHERE name = ? AND total = ?", row)
            if there > cost:  # a part of it has gone to somebody else
                rest = (self.name, total - cost, there - cost, last, last + self.per)
                self.db.execute("INSERT INTO passes VALUES (?, ?, ?, ?, ?)", rest)
            return True

        self._vacate(slot, shorten)
        return True

    def used(self) -> tuple[int, int]:
        total, last = self._last()
        return total - self._before(self.now - self.per, total), max(self.now, last + self.per)


_KINDS: dict[str, type[_Kind]] = {
    "gcra": _Gcra,
    "fixed-window": _FixedWindow,
    "sliding-window": _SlidingWindow,
}
