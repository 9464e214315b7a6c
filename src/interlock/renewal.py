"""Which leases to prolong, and when. No I/O: a thread or a task of the client carries it out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .stores.base import Gone, Renew

RETRY = 1.0  # seconds between attempts while the store is away


class Held:
    """What renewal knows of one lease."""

    __slots__ = ("due", "lock_id", "lost", "on_lost", "renews", "scope", "ttl", "valid_until")

    def __init__(
        self,
        scope: str,
        lock_id: str,
        ttl: int,
        valid_until: float,
        renews: bool,
        on_lost: Callable[[], None],
    ) -> None:
        self.scope = scope
        self.lock_id = lock_id
        self.ttl = ttl
        self.valid_until = valid_until
        self.renews = renews
        self.on_lost = on_lost
        self.lost: str | None = None
        self.due = valid_until - ttl / 1500 if renews else math.inf  # a third of the ttl after the grant

    def lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            self.on_lost()


class Renewals:
    """All leases of one client that somebody must keep an eye on."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self.wake_at = math.inf

    def add(self, held: Held) -> bool:
        """Answers whether whoever sleeps until `wake_at` has to be woken."""
        self._held[id(held)] = held
        return min(held.due, held.valid_until) < self.wake_at

    def remove(self, held: Held) -> None:
        self._held.pop(id(held), None)

    def due(self, now: float) -> list[Held]:
        """Those to renew now. Whoever's time ran out unnoticed is told so."""
        todo = []
        for held in list(self._held.values()):
            if held.valid_until <= now and not held.renews:
                self.remove(held)
                held.lose("its ttl ran out")
            elif min(held.due, held.valid_until) <= now:
                todo.append(held)
        return todo

    def settle(self, held: Held, sent: float, now: float, answer: Any) -> None:
        """`answer` is a reply of the store's, or the exception in its place."""
        if isinstance(answer, Gone):
            self.remove(held)
            other = answer.holder
            held.lose(f"it is held by {other.describe()} now" if other else "it expired or was broken")
        elif isinstance(answer, BaseException):
            held.due = now + RETRY
            if held.valid_until <= now:
                self.remove(held)
                held.lose(f"it could not be renewed in time: {answer}")
        else:
            held.valid_until = sent + held.ttl / 1000
            held.due = sent + held.ttl / 3000

    def sleep_until(self) -> float:
        self.wake_at = min(
            (min(held.due, held.valid_until) for held in list(self._held.values())), default=math.inf
        )
        return self.wake_at

    @staticmethod
    def operation(held: Held) -> Renew:
        return Renew(held.scope, held.lock_id, held.ttl)
