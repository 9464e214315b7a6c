"""The waiting room of one client: who waits here, when to look at the store again, whom a signal wakes.

No I/O and no clock of its own, so that threads and tasks share it. Of all who wait here for one scope
only the first looks, for all of them: that is what keeps an idle waiter cheap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .errors import InvalidInput
from .stores.base import Queued, Signal

HEAD_DELAY = 0.02  # a new head takes its post only if its turn does not come at once
STORM = 0.02  # at least this long between two looks at a scope, however often it is touched


_ABOUT_A_SCOPE = ("claim", "removed", "head", "renewed", "touched", "look")


class Place:
    """One waiter. `look` means: ask the store now."""

    __slots__ = ("_watch", "lock_id", "look", "removed", "scope", "tracked", "waker")

    def __init__(self, scope: str, lock_id: str, watch: _Watch) -> None:
        self._watch = watch
        self.scope = scope
        self.lock_id = lock_id
        self.look = False
        self.removed = False  # from the queue, by a clean-up
        self.tracked = False  # whether the last look asked to be told of touches
        self.waker: object = None  # how the driver wakes this waiter

    @property
    def due(self) -> float:
        """When to look of its own accord."""
        return self._watch.look_at if self._watch.first is self else math.inf


class _Watch:
    """What is known here of one scope."""

    __slots__ = ("armed", "head", "last_look", "look_at", "places", "promoted", "touched")

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.last_look = 0.0
        self.look_at = 0.0
        self.head = False
        self.armed = False  # the store tells when somebody touches the scope
        self.touched = False  # since the last look began
        self.promoted = False  # became head, likewise

    @property
    def first(self) -> Place:
        return next(iter(self.places.values()))


class Room:
    def __init__(self, window: float) -> None:
        self._window = window
        self._watches: dict[str, _Watch] = {}

    def __bool__(self) -> bool:
        """Whether anybody is in."""
        return bool(self._watches)

    def enter(self, scope: str, lock_id: str) -> Place:
        if self.has(scope, lock_id):
            raise self.taken(scope, lock_id)
        watch = self._watches.setdefault(scope, _Watch())
        place = watch.places[lock_id] = Place(scope, lock_id, watch)
        return place

    @staticmethod
    def taken(scope: str, lock_id: str) -> InvalidInput:
        return InvalidInput(f"lock_id {lock_id} already waits for {scope!r} in this client.")

    def leave(self, place: Place) -> Place | None:
        """Answers who looks from now on, if that changed."""
        watch = self._watches.get(place.scope)
        if watch is None:
            return None
        was_first = watch.first is place
        watch.places.pop(place.lock_id, None)
        if not watch.places:
            del self._watches[place.scope]
            return None
        if not was_first:
            return None
        watch.look_at = 0.0
        return watch.first

    def has(self, scope: str, lock_id: str) -> bool:
        watch = self._watches.get(scope)
        return watch is not None and lock_id in watch.places

    def is_waiting(self, scope: str) -> bool:
        return scope in self._watches

    def begins_look(self, place: Place) -> bool:
        """Whether this look should ask the store to tell when the scope is touched."""
        watch = self._watches[place.scope]
        watch.touched = watch.promoted = False
        return watch.head and watch.first is place

    def looked(self, place: Place, answer: Queued, now: float) -> None:
        watch = self._watches[place.scope]
        if watch.first is place:
            watch.last_look = now
            watch.look_at = now + answer.look_in / 1000
            watch.armed = place.tracked
            watch.head = answer.head or watch.promoted  # the answer may be older than the message
            if watch.head and (watch.touched or not place.tracked):
                watch.look_at = now + (STORM if place.tracked else 0.0)

    def all_look(self, scope: str) -> list[Place]:
        """Everybody who waits for the scope takes a place anew; answers whom to wake."""
        places = list(self._watches[scope].places.values())
        for place in places:
            place.look = True
        return places

    def feed(self, signals: Iterable[Signal], now: float) -> list[Place]:
        """Take in what the store says; answers the places to wake."""
        woken = []
        for kind, *rest in signals:
            if kind == "all":
                for watch in self._watches.values():
                    for place in watch.places.values():
                        place.look = True
                        woken.append(place)
                continue
            found = self._watches.get(rest[0]) if kind in _ABOUT_A_SCOPE else None
            if found is None:
                continue
            if kind == "claim":
                claimant = found.places.get(rest[1])
                if claimant is not None:
                    claimant.look = True
                    if claimant is found.first:
                        found.head = False  # it is in the queue no more, and need not be told of touches
                    woken.append(claimant)
                continue
            if kind == "removed":
                unwanted = found.places.get(rest[1])
                if unwanted is not None:
                    unwanted.look = unwanted.removed = True
                    woken.append(unwanted)
                continue
            if kind == "head":
                found.head = found.promoted = True
                found.look_at = min(found.look_at, now + HEAD_DELAY)
            elif kind == "renewed":
                # The touch that follows says the same. What it disarmed is armed again by the next look.
                found.armed = False
                beat = found.last_look + self._window
                if now - found.last_look >= 0.9 * self._window:
                    beat = now
                found.look_at = min(beat, now + int(rest[1]) / 1000)
            elif kind == "touched":
                found.touched = True
                if not found.armed:
                    continue
                found.armed = False
                found.look_at = min(found.look_at, max(now, found.last_look + STORM))
            elif kind == "look":
                found.look_at = now
            woken.append(found.first)
        return woken
