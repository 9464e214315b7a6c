"""Plain data: who holds, who waits, and what an operation answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
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

    def describe(self) -> str:
        """Who this is, in words for an error message."""
        who = []
        if self.label:
            who.append(self.label)
        if self.workflow_name or self.workflow_id:
            who.append(f"workflow {self.workflow_name or self.workflow_id}")
        if self.execution_id:
            who.append(f"execution {self.execution_id}")
        if self.pid:
            who.append(f"process {self.pid} on {self.host}")
        if not who:
            who.append(f"lock_id {self.lock_id}" if self.lock_id else "a counter without an owner")
        since = f" since {self.locked_at}" if self.locked_at else ""
        return ", ".join(who) + since


def holder_from_json(record: str | bytes | None, expires_in: float | None = None) -> Holder:
    """Read a sidecar, also one that somebody else wrote: what can't be read is left out."""
    try:
        fields = json.loads(record) if record else {}
    except ValueError:
        fields = {}
    if not isinstance(fields, dict):
        fields = {}
    known: dict[str, Any] = {}
    for name in _IDENTITY:
        value = fields.get(name)
        if value is None or value == "" or isinstance(value, (dict, list)):
            continue
        known[name] = value if name in ("fence", "pid") else str(value)
    permits = fields.get("permits")
    return Holder(**known, permits=permits if isinstance(permits, int) else 1, expires_in=expires_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """One place in a scope's queue."""

    lock_id: str
    workflow_id: str | None = None
    workflow_name: str | None = None
    execution_id: str | None = None
    host: str | None = None
    pid: int | None = None
    label: str | None = None
    permits: int = 1


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeInfo:
    """What `show` knows of a scope. `waiters` lists the first thousand of `waiting`."""

    scope: str
    held: bool
    count: int
    holders: tuple[Holder, ...]
    waiting: int
    waiters: tuple[Waiter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """`idempotent` is true when there was nothing left to release."""

    released: bool
    idempotent: bool
    scope: str
    lock_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    renewed: bool
    scope: str
    lock_id: str
    ttl: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """`broken` is false when nobody held the scope; `holders` are those who lost it."""

    broken: bool
    scope: str
    holders: tuple[Holder, ...]
