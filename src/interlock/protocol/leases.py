"""Taking a lease, keeping it, giving it back, and looking who has it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Generator
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple, TypedDict

from .. import machine, validate
from ..errors import (
    ClientClosed,
    InvalidInput,
    LeaseLost,
    LockHeld,
    NotOwner,
    StoreUnavailable,
    WaitTimeout,
)
from ..model import Broken, Holder, Released, Renewed, ScopeInfo
from ..room import Place, Room
from ..stores.base import (
    Acquire,
    Break,
    Gone,
    Granted,
    Queued,
    Refused,
    Release,
    Renew,
    Scopes,
    Show,
)
from .effects import Await, Call, Effect, Enter, Hold, Leave, Listen, Sleep, Wake


class Identity(TypedDict, total=False):
    """Who it is, for others to see."""

    execution_id: str | None
    workflow_id: str | None
    workflow_name: str | None
    label: str | None


class AcquireOptions(Identity, total=False):
    """What `acquire`, `lock` and `exclusive` take besides the scope."""

    ttl: float
    wait: float | None
    permits: int
    lock_id: str | None


DEFAULT_TTL = 30.0


class Fields(NamedTuple):
    """Who asks."""

    workflow_id: str | None
    workflow_name: str | None
    execution_id: str | None
    pid: int
    label: str | None
    permits: int

    @classmethod
    def of(
        cls,
        *,
        execution_id: str | None = None,
        workflow_id: str | None = None,
        workflow_name: str | None = None,
        label: str | None = None,
        permits: int = 1,
    ) -> Fields:
        """Checked."""
        return cls(
            validate.optional_text("workflow_id", workflow_id),
            validate.optional_text("workflow_name", workflow_name),
            validate.optional_text("execution_id", execution_id),
            os.getpid(),
            validate.optional_text("label", label),
            validate.permits(permits),
        )


class Request(NamedTuple):
    """A checked request for a lease."""

    first: Acquire  # what is asked for at first: take it if it is free
    wait: float | None
    fields: Fields

    @property
    def scope(self) -> str:
        return self.first.scope

    @property
    def lock_id(self) -> str:
        return self.first.lock_id

    def operation(self, queue: bool, place: int = 0) -> Acquire:
        return self.first._replace(queue=True, place=place) if queue else self.first


def request(
    scope: str,
    *,
    renews: bool,
    ttl: float = DEFAULT_TTL,
    wait: float | None = None,
    permits: int = 1,
    lock_id: str | None = None,
    execution_id: str | None = None,
    workflow_id: str | None = None,
    workflow_name: str | None = None,
    label: str | None = None,
) -> Request:
    """Check everything that a caller passed, before anything is done."""
    validate.scope(scope)
    lock_id = _new_lock_id() if lock_id is None else validate.name("lock_id", lock_id)
    fields = Fields.of(
        execution_id=execution_id,
        workflow_id=workflow_id,
        workflow_name=workflow_name,
        label=label,
        permits=permits,
    )
    first = Acquire(
        scope,
        lock_id,
        identity_of(fields, lock_id),
        validate.ttl_ms(ttl),
        permits,
        renews,
        queue=False,
        fails=wait == 0,
    )
    return Request(first, validate.wait(wait), fields)


def _new_lock_id() -> str:
    """As uuid.uuid4() makes them, in a fifth of the time."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def opening(lock_id: str) -> str:
    """How every sidecar that Interlock writes for this lock_id begins."""
    return f'{{"lock_id":{encode_basestring_ascii(lock_id)},'


def identity_of(fields: Fields, lock_id: str | None = None) -> str:
    """The JSON object that says who it is."""
    return ("{" if lock_id is None else opening(lock_id)) + _rest_of_identity(fields)


@lru_cache(maxsize=256)
def _rest_of_identity(fields: Fields) -> str:
    identity = {
        "workflow_id": fields.workflow_id,
        "workflow_name": fields.workflow_name,
        "execution_id": fields.execution_id,
        "host": machine.host(),
        "pid": fields.pid,
    }
    if fields.label is not None:
        identity["label"] = fields.label
    if fields.permits > 1:
        identity["permits"] = fields.permits
    return json.dumps(identity, separators=(",", ":"))[1:]


class Won(NamedTuple):
    """A lease that was granted, and until when it surely lasts by this machine's clock."""

    request: Request
    grant: Granted
    valid_until: float


class Attempt:
    """A request on its way to a lease."""

    def __init__(self, request: Request, on_lost: Callable[[Any], object] | None = None) -> None:
        self.request = request
        self.on_lost = on_lost
        self.place: Place | None = None  # in this client's waiting room

    def won(self, grant: Granted, sent: float) -> Won:
        return Won(self.request, grant, sent + self.request.first.ttl / 1000)


def take(attempt: Attempt, winning: Generator[Effect, Any, Won]) -> Generator[Effect, Any, Any]:
    """The lease that is won. Whatever goes wrong leaves neither a lease nor a place in the queue behind."""
    try:
        won = yield from winning
        if attempt.place is not None:
            yield Leave(attempt.place)
            attempt.place = None
        return (yield Hold(won, attempt.on_lost))
    except (LockHeld, InvalidInput):
        raise
    except GeneratorExit:  # thrown away with its event loop: nobody is left to carry out anything
        attempt.place = None
        raise
    except StoreUnavailable as error:
        if attempt.place is not None or error.maybe_done:
            yield from _withdraw(attempt)
        raise
    except BaseException:  # cancelled, interrupted or out of time
        yield from _withdraw(attempt)
        raise
    finally:
        if attempt.place is not None:
            yield Leave(attempt.place)


def acquire(
    req: Request, room: Room, listening: bool, on_lost: Callable[[Any], object] | None = None
) -> Generator[Effect, Any, Any]:
    if room.has(req.scope, req.lock_id):
        raise room.taken(req.scope, req.lock_id)
    attempt = Attempt(req, on_lost)
    return take(attempt, _win(attempt, room, listening))


def _win(attempt: Attempt, room: Room, listening: bool) -> Generator[Effect, Any, Won]:
    req = attempt.request
    started = machine.now()
    queue = listening and req.wait != 0
    if queue:  # be there before the turn can come
        attempt.place = yield Enter(req.scope, req.lock_id)
    try:
        reply = yield Call(req.operation(queue))
    except StoreUnavailable as error:
        if not (queue and error.maybe_done):
            raise
        reply = error  # in line perhaps: hold on to that
    if isinstance(reply, Granted):
        return attempt.won(reply, started)
    if req.wait == 0:
        assert isinstance(reply, Refused)
        raise LockHeld(req.scope, reply.holder, reply.total)
    if attempt.place is None:
        attempt.place = yield Enter(req.scope, req.lock_id)
    return attempt.won(*(yield from _wait_in_line(req, room, attempt.place, reply, started)))


def _wait_in_line(
    req: Request, room: Room, place: Place, reply: Any, started: float
) -> Generator[Effect, Any, tuple[Granted, float]]:
    deadline = math.inf if req.wait is None else started + req.wait
    ticket, failures = (reply.place if isinstance(reply, Refused) else 0), 0
    unanswered = reply if isinstance(reply, StoreUnavailable) else None
    queued = unanswered is not None
    holder: Holder | None = None if unanswered else reply.holder
    now = machine.now()
    while True:
        if isinstance(reply, Queued):
            room.looked(place, reply, now)
            if reply.forgotten and queued:  # a place of ours was given up for dead: so were the others
                yield Wake(room.all_look(req.scope))
                place.look = False
            ticket, queued = reply.place, True
            holder = reply.holder
            yield Await(place, deadline)
        if place.removed:
            raise LeaseLost(req.scope, req.lock_id, "its execution was cleaned up while it waited")
        now = machine.now()
        if now >= deadline and not place.look:
            if unanswered is not None:
                raise unanswered
            raise WaitTimeout(req.scope, holder, now - started)
        place.look = False
        place.tracked = room.begins_look(place)
        try:
            yield Listen()
            reply = yield Call(req.operation(True, ticket), tracked=place.tracked)
            failures, unanswered = 0, None
        except StoreUnavailable as error:
            # Whoever was already in line keeps trying, and keeps the place; a newcomer is told.
            if not queued or machine.now() >= deadline or isinstance(error, ClientClosed):
                raise
            failures += 1
            yield Sleep(min(0.05 * 2**failures, 1.0, max(0.0, deadline - machine.now())))
            reply = None
            place.look = True
            continue
        if isinstance(reply, Granted):
            return reply, now


def _withdraw(attempt: Attempt) -> Generator[Effect, Any, None]:
    req = attempt.request
    # The same way as the last look, which may still be travelling: it must arrive first.
    tracked = attempt.place is not None and attempt.place.tracked
    try:
        yield Call(Release(req.scope, req.lock_id), tracked=tracked, shielded=True)
    except StoreUnavailable:
        return  # the queue forgets us within the liveness window, the lease ends with its ttl


def release(scope: str, lock_id: str) -> Generator[Effect, Any, Released]:
    validate.scope(scope)
    validate.name("lock_id", lock_id)
    return (yield from give_back(scope, lock_id, 0))


def give_back(scope: str, lock_id: str, fence: int) -> Generator[Effect, Any, Released]:
    """The same for those who know the fence of the lease."""
    reply = yield Call(Release(scope, lock_id, fence), shielded=True)
    gone = isinstance(reply, Gone)
    if gone and reply.holder is not None:
        raise NotOwner(scope, lock_id, reply.holder, "release")
    return Released(released=True, idempotent=gone, scope=scope, lock_id=lock_id)


def renew(
    scope: str, lock_id: str, ttl: float = DEFAULT_TTL, fence: int = 0
) -> Generator[Effect, Any, Renewed]:
    validate.scope(scope)
    validate.name("lock_id", lock_id)
    reply = yield Call(Renew(scope, lock_id, validate.ttl_ms(ttl), fence))
    if isinstance(reply, Gone):
        raise NotOwner(scope, lock_id, reply.holder, "renew")
    return Renewed(renewed=True, scope=scope, lock_id=lock_id, ttl=ttl)


def break_(scope: str) -> Generator[Effect, Any, Broken]:
    holders = yield Call(Break(validate.scope(scope)))
    return Broken(broken=bool(holders), scope=scope, holders=holders)


def show(scope: str) -> Generator[Effect, Any, ScopeInfo]:
    info: ScopeInfo = yield Call(Show(validate.scope(scope)))
    return info


def locks() -> Generator[Effect, Any, list[ScopeInfo]]:
    found = []
    for scope in sorted((yield Call(Scopes()))):
        info: ScopeInfo = yield Call(Show(scope))
        if info.held or info.waiting:
            found.append(info)
    return found
