"""Following what happens in a store."""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

from .. import machine
from ..audience import Seat
from ..errors import ClientClosed, StoreUnavailable
from ..model import Event, ScopeInfo, holder_from_json, status_from_json
from ..stores.base import FOLLOWED_FOR, Follow, Scopes, Show
from .effects import Await, Call, Effect, Listen, Sit, Sleep

BEAT = FOLLOWED_FOR / 3000  # seconds
MOST_ENDS = 10_000  # leases whose end is watched for


class Follower(Seat):
    """One who follows the events, and looks when a lease should have ended, as nobody else might."""

    def __init__(self) -> None:
        super().__init__(None)
        self.ends: dict[str, float] = {}  # scope -> when to look
        self.informed = False  # of what was held before it came
        self.heard_until = math.inf  # for so long the store surely tells

    def note(self, scope: str, at: float) -> None:
        if scope in self.ends or len(self.ends) < MOST_ENDS:
            self.ends[scope] = at
            self.due = min(self.due, at)


def follow(follower: Follower) -> Generator[Effect, Any, None]:
    """From now on, and for a while."""
    yield Sit(follower)
    yield Listen(events=True)
    asked = machine.now()
    yield Call(Follow())
    follower.gap |= asked > follower.heard_until
    follower.heard_until = asked + FOLLOWED_FOR / 1000
    if not follower.informed:
        yield from _learn_ends(follower)
    yield from _look_at_ends(follower)


def next_event(follower: Follower) -> Generator[Effect, Any, Event]:
    failures = 0
    while True:
        follower.look = False
        if follower.risen:
            raise ClientClosed
        if follower.missed or follower.gap:
            missed, follower.missed = follower.missed, 0
            unknown, follower.gap = follower.gap, False
            return Event(event="missed", count=None if unknown else missed)
        while follower.events:
            event = _read(follower.events.popleft(), follower)
            if event is not None:
                return event
        if machine.now() < follower.due:
            yield Await(follower, math.inf)
            continue
        try:
            yield from follow(follower)
            failures = 0
        except StoreUnavailable as error:
            if not follower.informed or isinstance(error, ClientClosed):
                raise
            failures += 1
            yield Sleep(min(0.05 * 2**failures, 1.0))


def _learn_ends(follower: Follower) -> Generator[Effect, Any, None]:
    scopes: list[str] = yield Call(Scopes())
    for scope in scopes[:MOST_ENDS]:
        follower.note(scope, machine.now())
    follower.informed = True


def _look_at_ends(follower: Follower) -> Generator[Effect, Any, None]:
    """Whoever looks at a lease that has ended by itself makes the store say so."""
    now = machine.now()
    for scope in [scope for scope, at in follower.ends.items() if at <= now]:
        info: ScopeInfo = yield Call(Show(scope))
        lefts = [holder.expires_in for holder in info.holders if holder.expires_in is not None]
        if lefts:
            follower.ends[scope] = machine.now() + min(lefts) + 0.001
        else:
            del follower.ends[scope]
    follower.due = min([now + BEAT, *follower.ends.values()])


def _read(text: str, follower: Follower) -> Event | None:
    try:
        said = json.loads(text)
        event, scope, record = str(said["event"]), str(said["scope"]), said.get("record")
        at = datetime.fromtimestamp(float(said["at"]), UTC)
        who = json.loads(record) if record else said
        fence = int(who["fence"]) if "fence" in who else None
        status = None
        if event == "progress":
            status = status_from_json(scope, who["value"] if record else None, record, None)
        if "ttl" in said:
            follower.note(scope, machine.now() + float(said["ttl"]) / 1000 + 0.001)
    except (ValueError, KeyError, TypeError, OverflowError, AttributeError):
        return None  # somebody else writes on our channel
    holder = holder_from_json(json.dumps({**who, "fence": fence}))
    return Event(
        event=event,
        scope=scope,
        at=at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        holder=holder if record or holder.lock_id else None,
        fence=fence,
        status=status,
    )
