"""Everything Interlock raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import Decision, Holder, Status


class InterlockError(Exception):
    """The common parent: catch this to catch them all."""

    def __reduce__(self) -> Any:
        """Some cross from one process to another: pickled as they are, not made anew from their message."""
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[InterlockError], args: tuple[Any, ...], fields: dict[str, Any]) -> InterlockError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(fields)
    return error


class InvalidInput(InterlockError, ValueError):
    """An argument is out of range; the message names it and the range. Nothing was changed."""


class StoreUnavailable(InterlockError, ConnectionError):
    """The store can't be reached, refuses us, or can't write."""

    def __init__(self, message: str, maybe_done: bool = False) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done
        """Whether the operation may have been carried out although its answer was lost."""


class ClientClosed(StoreUnavailable):
    """`close()` was called on the client while somebody waited, or before."""

    def __init__(self) -> None:
        super().__init__("This client was closed.")


class LockHeld(InterlockError):
    """The scope is taken and the caller did not want to wait."""

    def __init__(self, scope: str, holder: Holder | None, count: int, status: Status | None = None) -> None:
        who = holder.describe() if holder else "somebody unknown"
        message = f"{scope!r} is held by {who} (count {count})."
        if status is not None:
            by = f" ({who})" if holder else ""
            message = f"Already Executing: {scope!r} is at {status.describe()}{by}."
        super().__init__(message)
        self.scope = scope
        self.holder = holder
        self.count = count
        self.status = status
        """The job's progress, where `status.begin` was refused."""


class LimitExceeded(InterlockError):
    """A rate limit did not let the call through."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(
            f"The limit of {decision.limit} on {decision.scope!r} is used up;"
            f" try again in {decision.retry_after:.3g} s."
        )
        self.decision = decision
        self.scope = decision.scope
        self.retry_after = decision.retry_after


class WaitTimeout(InterlockError, TimeoutError):
    """The wait ended before the caller's turn came."""

    def __init__(self, scope: str, holder: Holder | None, waited: float) -> None:
        who = holder.describe() if holder else "somebody unknown"
        super().__init__(f"Waited {waited:.1f} s for {scope!r}, which is held by {who}.")
        self.scope = scope
        self.holder = holder
        self.waited = waited


class LeaseLost(InterlockError):
    """The lease ended before its holder was done; somebody else may hold the scope now."""

    def __init__(self, scope: str, lock_id: str, reason: str) -> None:
        super().__init__(f"The lease on {scope!r} (lock_id {lock_id}) was lost: {reason}.")
        self.scope = scope
        self.lock_id = lock_id
        self.reason = reason


class NotOwner(InterlockError):
    """A release or renewal named a lock_id that does not hold the scope."""

    def __init__(self, scope: str, lock_id: str | None, holder: Holder | None, action: str) -> None:
        who = holder.describe() if holder else "nobody: the lease has expired or was released"
        whoever = f"lock_id {lock_id}" if lock_id else "somebody without its lock_id"
        super().__init__(f"LOGIC ERROR: {whoever} can't {action} {scope!r}, which is held by {who}.")
        self.scope = scope
        self.lock_id = lock_id
        self.holder = holder
