"""Locks, semaphores and leases shared by Python programs, n8n workflows and shell commands."""

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
from .lease import AsyncLease, Lease
from .model import (
    Broken,
    CleanedUp,
    Decision,
    Event,
    Holder,
    Released,
    Renewed,
    ScopeInfo,
    Status,
    StatusChanged,
    Waiter,
)
from .tasks import AsyncInterlock
from .threads import Interlock

__all__ = [
    "StatusChanged",
    "Status",
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
