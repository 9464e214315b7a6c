"""Progress: a short value under a key, with percent and message, for others to read."""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from typing import Any, TypedDict, Unpack

from .. import machine, validate
from ..audience import Seat
from ..errors import ClientClosed, LockHeld, NotOwner, StoreUnavailable
from ..model import Status, StatusChanged
from ..stores.base import Begin, GetStatus, Gone, Report, Seen, SetStatus, Taken, UnsetStatus, Words
from .effects import Await, Call, Effect, Listen, Sit, Sleep
from .leases import Attempt, Fields, Request, Won, identity_of, release, take

DEFAULT_TIMEOUT = 600.0


class Progress(TypedDict, total=False):
    """What a status says beside its value."""

    percent: float | None
    message: str | None


def words(who: Fields, lock_id: str | None, value: str, /, **progress: Unpack[Progress]) -> Words:
    """A status, checked."""
    more: dict[str, Any] = {"value": validate.text("value", value)}
    percent, message = progress.get("percent"), progress.get("message")
    if percent is not None:
        more["percent"] = validate.percent(percent)
    if message is not None:
        more["message"] = validate.text("message", message)
    return Words(value, f"{identity_of(who, lock_id)[:-1]},{json.dumps(more, separators=(',', ':'))[1:]}")


def set_status(
    key: str, said: Words, timeout: float, lock_id: str | None
) -> Generator[Effect, Any, StatusChanged]:
    """`lock_id`: of the lease on which the job goes on; its status lasts as long as the lease."""
    validate.scope(key, "key")
    if lock_id is not None:
        yield from report(key, validate.name("lock_id", lock_id), said)
    else:
        reply = yield Call(SetStatus(key, said, validate.ttl_ms(timeout, "timeout")))
        if isinstance(reply, Gone):
            raise NotOwner(key, None, reply.holder, "set the status of")
    return StatusChanged(ok=True, key=key)


def report(scope: str, lock_id: str, said: Words) -> Generator[Effect, Any, None]:
    reply = yield Call(Report(scope, lock_id, said))
    if isinstance(reply, Gone):
        raise NotOwner(scope, lock_id, reply.holder, "set the status of")


def get_status(key: str) -> Generator[Effect, Any, Status]:
    seen: Seen = yield Call(GetStatus(validate.scope(key, "key")))
    return seen.status


def unset_status(key: str, lock_id: str | None) -> Generator[Effect, Any, StatusChanged]:
    validate.scope(key, "key")
    if lock_id is not None:  # a job's status goes with its lease
        yield from release(key, lock_id)
        return StatusChanged(ok=True, key=key)
    reply = yield Call(UnsetStatus(key))
    if isinstance(reply, Gone):
        raise NotOwner(key, None, reply.holder, "unset the status of")
    return StatusChanged(ok=True, key=key)


def begin(job: Request, said: Words) -> Generator[Effect, Any, Any]:
    """The lease on a job, unless it runs already: then `LockHeld` with its status."""
    attempt = Attempt(job)
    return take(attempt, _begin(attempt, said))


def _begin(attempt: Attempt, said: Words) -> Generator[Effect, Any, Won]:
    job, sent = attempt.request, machine.now()
    reply = yield Call(Begin(job.first, said))
    if isinstance(reply, Taken):
        status = reply.status if reply.status.output is not None else None
        raise LockHeld(job.scope, reply.holder, reply.total, status)
    return attempt.won(reply, sent)


class Watcher(Seat):
    """One who watches a status."""

    def __init__(self, key: str) -> None:
        super().__init__(validate.scope(key, "key"))
        self.last: Status | None = None


def next_status(watcher: Watcher) -> Generator[Effect, Any, Status]:
    """The status as soon as it differs from the last one."""
    assert watcher.key is not None
    yield Sit(watcher)
    failures = 0
    while True:
        if not watcher.look and machine.now() < watcher.due:
            yield Await(watcher, math.inf)
        if watcher.risen:
            raise ClientClosed
        watcher.look = False
        try:
            yield Listen()
            seen: Seen = yield Call(GetStatus(watcher.key, watch=True), tracked=True)
        except StoreUnavailable as error:
            if watcher.last is None or isinstance(error, ClientClosed):
                raise
            failures += 1
            yield Sleep(min(0.05 * 2**failures, 1.0))
            watcher.look = True
            continue
        failures = 0
        watcher.due = machine.now() + seen.look_in / 1000
        last, watcher.last = watcher.last, seen.status
        if last is None or _differs(seen.status, last):
            return seen.status


def _differs(one: Status, other: Status) -> bool:
    """Time that runs out is no change."""
    return one.replace(expires_in=None) != other.replace(expires_in=None)
