"""Which leases to prolong, and when. No I/O: a thread or a task of the client carries it out."""

from __future__ import annotations

import math
from typing import Any

from .model import Holder
from .stores.base import Gone, Renew

RETRY = 1.0  # seconds between attempts while the store is away; a tenth of the ttl if that is less


class Held:
    """What renewal has to know of a lease: what it is, until when it lasts, whom to tell of its loss."""

    scope: str
    lock_id: str
    ttl: float
    renews: bool
    valid_until: float
    due: float  # when to renew it; infinite while that is under way
    fence: int
    lost_because: str | None = None
    gone = False  # the store has said so itself

    def when_lost(self) -> None:
        """Called once, by whoever finds out."""

    def lose(self, reason: str) -> None:
        if self.lost_because is None:
            self.lost_because = reason
            self.when_lost()


def taken_by(holder: Holder | None) -> str:
    """Why a lease that is not there any more was lost."""
    return f"it is held by {holder.describe()} now" if holder else "it expired or was broken"


class Renewals:
    """All leases of one client that somebody must keep an eye on.

    Whoever does so sleeps until `wake_at`. Threads call add and sleep_until under a lock of their client's.
    """

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self.wake_at = math.inf

    def __len__(self) -> int:
        return len(self._held)

    def add(self, held: Held) -> bool:
        """Answers whether whoever sleeps until `wake_at` has to be woken."""
        self._held[id(held)] = held
        soon = min(held.due, held.valid_until)
        if soon >= self.wake_at:
            return False
        self.wake_at = soon
        return True

    def remove(self, held: Held) -> None:
        self._held.pop(id(held), None)

    def due(self, now: float) -> list[tuple[Held, Renew]]:
        """Those to renew now, and how. Whoever's time has run out is told so."""
        todo = []
        for held in list(self._held.values()):
            if held.valid_until <= now:
                self.remove(held)
                held.lose("it could not be renewed in time" if held.renews else "its ttl ran out")
            elif held.due <= now:
                held.due = math.inf
                todo.append((held, Renew(held.scope, held.lock_id, round(held.ttl * 1000), held.fence)))
        return todo

    def settle(self, held: Held, operation: Renew, sent: float, now: float, answer: Any) -> None:
        """`answer` is a reply of the store's, or the exception in its place."""
        if id(held) not in self._held:
            return  # released meanwhile, or told already
        if isinstance(answer, Gone):
            held.gone = True
            self.remove(held)
            held.lose(taken_by(answer.holder))
        elif isinstance(answer, BaseException):
            held.due = now + min(RETRY, held.ttl / 10)
        elif round(held.ttl * 1000) != operation.ttl:
            held.due = now  # somebody has changed the ttl meanwhile, and this may have undone it
        else:
            held.valid_until = sent + held.ttl
            held.due = sent + held.ttl / 3

    def first_end(self) -> float:
        """When the first of them ends, unless it is renewed."""
        return min((held.valid_until for held in list(self._held.values())), default=math.inf)

    def sleep_until(self, now: float) -> float:
        soon = min((min(held.due, held.valid_until) for held in list(self._held.values())), default=math.inf)
        # A time once set is kept although its lease is gone: else every short lease would wake the sleeper.
        self.wake_at = min(self.wake_at, soon) if self.wake_at > now else soon
        return self.wake_at
