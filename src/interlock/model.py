"""Plain data: who holds, who waits, and what an operation answered."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

from .errors import LimitExceeded
from .record import Record

_IDENTITY = (
    "lock_id",
    "workflow_id",
    "workflow_name",
    "execution_id",
    "locked_at",
    "fence",
    "host",
    "pid",
    "label",
)


class Holder(Record):
    """One hold on a scope. A hold taken by something else than Interlock may lack any field."""

    lock_id: str | None = None
    workflow_id: str | None = None
    workflow_name: str | None = None
    execution_id: str | None = None
    locked_at: str | None = None
    fence: int | None = None
    host: str | None = None
    pid: int | None = None
    label: str | None = None
    permits: int = 1
    expires_in: float | None = None
    """Seconds left by the store's clock; None when the hold has no end."""

    @property
    def name(self) -> str:
        """Who this is, in words."""
        return _name(self)

    def describe(self) -> str:
        """The same, and since when: for an error message."""
        return f"{self.name} since {self.locked_at}" if self.locked_at else self.name


def _name(who: Holder | Waiter) -> str:
    words = []
    if who.label:
        words.append(who.label)
    if who.workflow_name or who.workflow_id:
        words.append(f"workflow {who.workflow_name or who.workflow_id}")
    if who.execution_id:
        words.append(f"execution {who.execution_id}")
    if who.pid:
        words.append(f"process {who.pid} on {who.host}")
    if not words:
        words.append(f"lock_id {who.lock_id}" if who.lock_id else "a counter without an owner")
    return ", ".join(words)


def _object(record: str | bytes | None) -> dict[str, Any]:
    """A JSON object; an empty one if it is none."""
    try:
        fields = json.loads(record) if record else {}
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def holder_from_json(record: str | bytes | None, expires_in: float | None = None) -> Holder:
    """Read a sidecar, also one that somebody else wrote: what can't be read is left out."""
    fields = _object(record)
    known: dict[str, Any] = {}
    for name in _IDENTITY:
        value = fields.get(name)
        if value is None or value == "" or isinstance(value, (dict, list)):
            continue
        known[name] = value if name in ("fence", "pid") else str(value)
    permits = fields.get("permits")
    return Holder(**known, permits=permits if isinstance(permits, int) else 1, expires_in=expires_in)


class Waiter(Record):
    """One place in a scope's queue."""

    lock_id: str
    workflow_id: str | None = None
    workflow_name: str | None = None
    execution_id: str | None = None
    host: str | None = None
    pid: int | None = None
    label: str | None = None
    permits: int = 1

    @property
    def name(self) -> str:
        """Who this is, in words."""
        return _name(self)


def waiter_from_json(record: str | bytes) -> Waiter:
    holder = holder_from_json(record)
    return Waiter(
        lock_id=holder.lock_id or "",
        workflow_id=holder.workflow_id,
        workflow_name=holder.workflow_name,
        execution_id=holder.execution_id,
        host=holder.host,
        pid=holder.pid,
        label=holder.label,
        permits=holder.permits,
    )


class ScopeInfo(Record):
    """What `show` knows of a scope. `waiters` lists the first thousand of `waiting`."""

    scope: str
    held: bool
    count: int
    holders: tuple[Holder, ...]
    waiting: int
    waiters: tuple[Waiter, ...]


class Released(Record):
    """`idempotent` is true when there was nothing left to release."""

    released: bool
    idempotent: bool
    scope: str
    lock_id: str


class Renewed(Record):
    renewed: bool
    scope: str
    lock_id: str
    ttl: float


class Broken(Record):
    """`broken` is false when nobody held the scope; `holders` are those who lost it."""

    broken: bool
    scope: str
    holders: tuple[Holder, ...]


class Decision(Record):
    """What a rate limit says to one call. True if the call is let through.

    As a `with` block, or by `check()`, a call that is not let through raises `LimitExceeded`.
    """

    allowed: bool
    scope: str
    count: int
    """How much of the limit is used, this call included; more than the limit when it is denied."""
    limit: int
    remaining: int
    retry_after: float
    """Seconds after which the same call would be let through; 0 when it is."""
    reset_at: float
    """When the whole limit is free again if nobody calls: seconds since 1970 by the store's clock."""
    waited: float = 0.0

    def __bool__(self) -> bool:
        return self.allowed

    def check(self) -> None:
        if not self.allowed:
            raise LimitExceeded(self)

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A call that was let through is not taken back."""


class LimitInUse(Record):
    """How much of a rate limit is used."""

    scope: str
    algorithm: str
    per: float
    used: int
    reset_at: float
    """When all of it is free again if nobody calls: seconds since 1970 by the store's clock."""


class Status(Record):
    """What stands under a status key. `output` is None when nothing does."""

    key: str
    output: str | None
    percent: float | None = None
    message: str | None = None
    at: str | None = None
    holder: Holder | None = None
    """Who wrote it; None for a value that something else than Interlock wrote."""
    expires_in: float | None = None

    def describe(self) -> str:
        """As in "loading, 40 %: page 4 of 10"."""
        words = self.output or "nothing"
        if self.percent is not None:
            words += f", {self.percent:g} %"
        return f"{words}: {self.message}" if self.message else words


def status_from_json(key: str, output: str | None, details: str | bytes | None, left: float | None) -> Status:
    """Details that belong to another value are left out: something else has written the value since."""
    if output is None:
        return Status(key=key, output=None)
    fields = _object(details)
    if fields.get("value") != output:
        return Status(key=key, output=output, expires_in=left)
    return Status(
        key=key,
        output=output,
        percent=fields.get("percent"),
        message=fields.get("message"),
        at=fields.get("at"),
        holder=holder_from_json(details),
        expires_in=left,
    )


class StatusChanged(Record):
    """What `set` and `unset` answer."""

    ok: bool
    key: str


class CleanedUp(Record):
    """`scopes` are those that the execution held or waited for, and does no more."""

    cleaned: bool
    cleaned_count: int
    scopes: tuple[str, ...]
    reason: str | None = None
    """Why nothing could be done, where that is so."""


class Event(Record):
    """One thing that happened in a store."""

    event: str
    """acquired, queued, handed_over, released, left, lost, expired, broken, denied or progress; missed
    when the follower was too slow or cut off, with the `count` where it is known."""
    scope: str | None = None
    at: str | None = None
    holder: Holder | None = None
    """Whom it happened to, as far as it is known."""
    fence: int | None = None
    count: int | None = None
    status: Status | None = None
