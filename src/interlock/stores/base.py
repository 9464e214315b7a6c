"""What a store can do: the operations, their answers, and the signals that wake a waiter.

The protocol yields operations; a store carries each out in one atomic step and answers it.
Times are milliseconds by the store's clock, and only ever durations.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ..model import Holder, Status

Signal = tuple[str, ...]
"""("claim", scope, lock_id): your turn. ("look", scope): something changed, look at it.
("head", scope): you are first in the queue now. ("renewed", scope, ms): the hold was prolonged.
("removed", scope, lock_id): your place was taken from you.
("touched", scope), ("status", key): somebody has written there. ("event", json): it happened.
("missed", count): so many events are lost. ("gap",): some may be, nobody knows how many.
("all",): messages may have been missed, look at everything."""


class Words(NamedTuple):
    """A status: the plain value, and a JSON object that says more of it, without `at`."""

    value: str
    details: str


class Acquire(NamedTuple):
    """Take the scope, claim what was handed over, keep the place in the queue: one step for all.

    Sent again with the same lock_id it answers the same, so it heals lost replies and lost wakes.
    """

    scope: str
    lock_id: str
    identity: str  # the JSON object for the sidecar, without fence and locked_at
    ttl: int
    permits: int
    renews: bool  # the holder renews it while it lives, so it may end with its process
    queue: bool  # wait in line if it is not free
    fails: bool = False  # if not, it is refused for good
    place: int = 0  # the place that an earlier answer gave, to keep it


class Release(NamedTuple):
    """Give back a lease, an offer, or a place in the queue; hand the scope to the next."""

    scope: str
    lock_id: str
    fence: int = 0  # where it is known: tells a release that was sent twice that the first has done it
    execution_id: str | None = None  # only what belongs to this execution


class Renew(NamedTuple):
    scope: str
    lock_id: str
    ttl: int
    fence: int = 0  # where it is known: tells a holder that has lost its lease from a stranger


class Begin(NamedTuple):
    """Take the scope if neither a lease nor a status stands there, and write the status."""

    lease: Acquire
    status: Words


class Break(NamedTuple):
    """Take the scope from whoever holds it, and hand it to the next."""

    scope: str


class Show(NamedTuple):
    scope: str


class Scopes(NamedTuple):
    """Names of all scopes that are held or waited for."""


class Owned(NamedTuple):
    """(scope, lock_id) of every lease and place that was given to an execution; some may be over."""

    execution_id: str


class Limit(NamedTuple):
    """Let a call through if the limit admits it, or book the next moment at which it does."""

    scope: str
    algorithm: str
    limit: int
    per: int
    cost: int
    burst: int
    patience: int  # how far ahead it may be booked; 0 for now or never, LOOK to change nothing


LOOK = -1


class Refund(NamedTuple):
    """Give back what was booked for a moment that has not come yet."""

    of: Limit
    slot: int


class Reset(NamedTuple):
    """Forget what was let through."""

    scope: str
    algorithm: str
    per: int


class LimitsInUse(NamedTuple):
    """(scope, algorithm, which) of every limit of which something may be used."""


class Used(NamedTuple):
    """How much of one of them is; None if nothing."""

    scope: str
    algorithm: str
    which: int  # what LimitsInUse answered: `per`, or in Redis the number of a fixed window


class Once(NamedTuple):
    """True for the first caller until `per` is over. The same token is the same call, sent again."""

    key: str
    token: str
    per: int


class SetStatus(NamedTuple):
    """Write a status that nobody's lease stands behind."""

    key: str
    words: Words
    timeout: int


class Report(NamedTuple):
    """Write the status of a scope for as long as the lease lasts."""

    scope: str
    lock_id: str
    words: Words


class GetStatus(NamedTuple):
    key: str
    watch: bool = False  # be told when it changes


class UnsetStatus(NamedTuple):
    key: str


class Follow(NamedTuple):
    """For as long as it is repeated in time, tell this client of every event."""


FOLLOWED_FOR = 15000  # ms
FAR = 3_600_000  # ms; nothing is looked at less often than that


Operation = (
    Acquire
    | Release
    | Renew
    | Begin
    | Break
    | Show
    | Scopes
    | Owned
    | Limit
    | Refund
    | Reset
    | LimitsInUse
    | Used
    | Once
    | SetStatus
    | Report
    | GetStatus
    | UnsetStatus
    | Follow
)


class Granted(NamedTuple):
    fence: int
    locked_at: str
    total: int  # how many hold the scope now


class Refused(NamedTuple):
    holder: Holder | None
    place: int  # in the queue, should the caller decide to wait after all
    total: int  # how many hold the scope now


class Queued(NamedTuple):
    holder: Holder | None
    place: int
    look_in: int  # look again after this many ms, unless something wakes you earlier
    head: bool  # first in line
    forgotten: bool = False  # the place that was asked for was not there, and has been taken
    pids: tuple[int, ...] = ()  # local file: processes whose end frees the scope


class Gone(NamedTuple):
    """There was no such lease; `holder` has the scope now, if anybody."""

    holder: Holder | None


class Done(NamedTuple):
    """It was carried out."""


class Taken(NamedTuple):
    """Somebody holds the scope, or a status stands there."""

    holder: Holder | None
    total: int
    status: Status


class Ruling(NamedTuple):
    allowed: bool
    used: int
    remaining: int
    delay: float  # seconds until the booked moment, or until it is worth to ask again
    reset_at: float  # seconds since 1970
    slot: int  # names the booked moment, for a refund


class Seen(NamedTuple):
    """A status, and in how many ms to look again if nothing tells that it has changed."""

    status: Status
    look_in: int


OK, WARNING, FAILED = "ok", "warning", "failed"


class Finding(NamedTuple):
    """One thing that `interlock doctor` has to say of a store."""

    what: str
    state: str  # OK, WARNING or FAILED
    says: str


class Busy(Exception):
    """The store is in use for a moment; try the operation again shortly."""


def new_client_id() -> str:
    """Names one client in one process."""
    return os.urandom(16).hex()
