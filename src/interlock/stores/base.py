"""What a store can do: the operations, their answers, and the signals that wake a waiter.

The protocol yields operations; a store carries each out in one atomic step and answers it.
Times are milliseconds by the store's clock, and only ever durations.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from ..model import Holder, ScopeInfo

Signal = tuple[str, ...]
"""("claim", scope, lock_id): your turn. ("look", scope): something changed, look at it.
("head", scope): you are first in the queue now. ("renewed", scope, ms): the hold was prolonged.
("all",): messages may have been missed, look at everything."""


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
    place: int = 0  # the place that an earlier answer gave, to keep it


class Release(NamedTuple):
    """Give back a lease, an offer, or a place in the queue; hand the scope to the next."""

    scope: str
    lock_id: str
    fence: int = 0  # where it is known: tells a release that was sent twice that the first has done it


class Renew(NamedTuple):
    scope: str
    lock_id: str
    ttl: int


class Break(NamedTuple):
    """Take the scope from whoever holds it, and hand it to the next."""

    scope: str


class Show(NamedTuple):
    scope: str


class Scopes(NamedTuple):
    """Names of all scopes that are held or waited for."""


Operation = Acquire | Release | Renew | Break | Show | Scopes


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
    """The release or renewal found no such lease; `holder` has the scope now, if anybody."""

    holder: Holder | None


class Done(NamedTuple):
    """The release or renewal was carried out."""


Reply = Granted | Refused | Queued | Gone | Done | tuple[Holder, ...] | ScopeInfo | list[str]


class Busy(Exception):
    """The store is in use for a moment; try the operation again shortly."""


def new_client_id() -> str:
    """Names one client in one process."""
    return uuid.uuid4().hex
