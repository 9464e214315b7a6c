"""Locks, semaphores and leases shared by Python programs, n8n workflows and shell commands."""

from typing import TYPE_CHECKING, Any

from .errors import (
    InterlockError,
    InvalidInput,
    LeaseLost,
    LimitExceeded,
    LockHeld,
    NotOwner,
    StoreUnavailable,
    WaitTimeout,
)
from .lease import Lease
from .model import (
    Broken,
    CleanedUp,
    Decision,
    Event,
    Holder,
    LimitInUse,
    Released,
    Renewed,
    ScopeInfo,
    Status,
    StatusChanged,
    Waiter,
)
from .threads import Interlock

if TYPE_CHECKING:
    from .async_lease import AsyncLease
    from .tasks import AsyncInterlock

__all__ = [
    "StatusChanged",
    "Status",
    "LimitInUse",
    "LimitExceeded",
    "Event",
    "Decision",
    "CleanedUp",
    "AsyncInterlock",
    "AsyncLease",
    "Broken",
    "Holder",
    "Interlock",
    "InterlockError",
    "InvalidInput",
    "Lease",
    "LeaseLost",
    "LockHeld",
    "NotOwner",
    "Released",
    "Renewed",
    "ScopeInfo",
    "StoreUnavailable",
    "WaitTimeout",
    "Waiter",
]


def __getattr__(name: str) -> Any:
    """What needs asyncio, which is slow to import, is imported by those who use it."""
    if name == "AsyncInterlock":
        from .tasks import AsyncInterlock  # noqa: PLC0415

        return AsyncInterlock
    if name == "AsyncLease":
        from .async_lease import AsyncLease  # noqa: PLC0415

        return AsyncLease
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
