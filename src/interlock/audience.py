"""Those in one client who watch: a status, or all events. No I/O and no clock of its own."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Iterable

from .stores.base import Signal

KEPT = 10_000  # events that one follower may be behind


class Seat:
    """One who watches. `look` means: there may be something new."""

    def __init__(self, key: str | None) -> None:
        self.key = key  # of the status; None for whoever follows the events
        self.look = True
        self.due = -math.inf  # when to look of its own accord
        self.waker: object = None  # how the driver wakes it
        self.events: deque[str] = deque()
        self.missed = 0
        self.gap = False  # events may be lost, nobody knows how many
        self.risen = False  # watches no more


class Audience:
    def __init__(self) -> None:
        self._seats: weakref.WeakSet[Seat] = weakref.WeakSet()  # whoever drops an iterator watches no more

    def sit(self, seat: Seat) -> None:
        self._seats.add(seat)

    def rise(self, seat: Seat) -> None:
        seat.risen = seat.look = True
        self._seats.discard(seat)

    def feed(self, signals: Iterable[Signal]) -> list[Seat]:
        """Take in what the store says; answers whom to wake."""
        if not self._seats:
            return []
        woken = []
        for kind, *rest in signals:
            for seat in self._seats:
                if kind == "all":
                    seat.due = -math.inf
                elif kind == "event" and seat.key is None:
                    self._keep(seat, rest[0])
                elif kind == "missed" and seat.key is None:
                    seat.missed += int(rest[0])
                elif kind == "gap" and seat.key is None:
                    seat.gap = True
                elif kind != "status" or seat.key != rest[0]:
                    continue
                seat.look = True
                woken.append(seat)
        return woken

    @staticmethod
    def _keep(seat: Seat, event: str) -> None:
        """Whoever falls behind loses the oldest, and is told how many."""
        if len(seat.events) == KEPT:
            seat.events.popleft()
            seat.missed += 1
        seat.events.append(event)
