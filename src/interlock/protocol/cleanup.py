"""After an execution has ended, however it ended: free what it still has."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from .. import validate
from ..model import CleanedUp, Holder, ScopeInfo, Waiter
from ..stores.base import Done, Owned, Release, Show
from .effects import Call, Effect


def cleanup(execution_id: str, scopes: Iterable[str] | None) -> Generator[Effect, Any, CleanedUp]:
    validate.name("execution_id", execution_id)
    named = validate.scopes(scopes)
    had: list[tuple[str, str]] = yield Call(Owned(execution_id))
    for scope in named:  # what n8n's own sub-workflows took is on no list
        info: ScopeInfo = yield Call(Show(scope))
        there: tuple[Holder | Waiter, ...] = info.holders + info.waiters
        had += [(scope, x.lock_id) for x in there if x.execution_id == execution_id and x.lock_id]
    freed: set[str] = set()
    for scope, lock_id in dict.fromkeys(had):
        reply = yield Call(Release(scope, lock_id, execution_id=execution_id), shielded=True)
        if isinstance(reply, Done):
            freed.add(scope)
    reason = None
    if not had and not named:
        reason = f"Execution {execution_id} is on no list, and no scopes were named."
    return CleanedUp(
        cleaned=bool(freed), cleaned_count=len(freed), scopes=tuple(sorted(freed)), reason=reason
    )
