"""`il.limit`: asking a rate limit."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from .model import Decision, LimitInUse
from .protocol import limits
from .protocol.limits import FIXED, Algorithm, LimitOptions
from .stores.base import Limit

if TYPE_CHECKING:
    from .tasks import AsyncInterlock
    from .threads import Interlock


class Limits:
    """Rate limits of `Interlock`."""

    def __init__(self, client: Interlock) -> None:
        self._client = client

    def __call__(
        self, scope: str, *, limit: int, per: float, wait: float | None = 0, **options: Unpack[LimitOptions]
    ) -> Decision:
        """Count a call: at most `limit` in `per` seconds. What is denied costs nothing.

        algorithm: "fixed-window" (n8n's, whose budget it shares), "sliding-window" (never more than the limit
        in any `per` seconds) or "gcra" (evenly, after a burst).
        cost: how many calls this one counts as (1).
        burst: how many may come at once, for gcra (the limit).
        wait: seconds to wait in line; whose turn would not come in time is denied at once. None: any time.

        In a `with` block: `LimitExceeded` if it is denied.
        """
        return self._client._run(limits.limit(*limits.checked(scope, wait, limit=limit, per=per, **options)))

    def peek(self, scope: str, *, limit: int, per: float, **options: Unpack[LimitOptions]) -> Decision:
        """What a call would be told now, without counting it; `count` and `remaining` as they are."""
        return self._client._run(limits.peek(limits.checked(scope, 0, limit=limit, per=per, **options)[0]))

    def reset(self, scope: str, *, per: float, algorithm: Algorithm = FIXED) -> bool:
        """Forget what was let through; answers whether there was anything."""
        return self._client._run(limits.reset(scope, per, algorithm))

    def all(self) -> list[LimitInUse]:
        """All limits of which something is used now. The store knows how much, not how much is allowed."""
        return self._client._run(limits.in_use())


class Asked:
    """A question to a limit, for `await` or `async with`."""

    def __init__(self, client: AsyncInterlock, ask: Limit, wait: float | None) -> None:
        self._client, self._ask, self._wait = client, ask, wait

    def __bool__(self) -> bool:
        raise TypeError("A limit of AsyncInterlock has to be awaited: (await il.limit(…)).allowed.")

    def __await__(self) -> Generator[Any, Any, Decision]:
        return self._client._run(limits.limit(self._ask, self._wait)).__await__()

    async def __aenter__(self) -> Decision:
        return (await self).__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A call that was let through is not taken back."""


class AsyncLimits:
    """Rate limits of `AsyncInterlock`."""

    def __init__(self, client: AsyncInterlock) -> None:
        self._client = client

    def __call__(
        self, scope: str, *, limit: int, per: float, wait: float | None = 0, **options: Unpack[LimitOptions]
    ) -> Asked:
        """As `Limits`: `await il.limit(…)`, or `async with il.limit(…):`."""
        return Asked(self._client, *limits.checked(scope, wait, limit=limit, per=per, **options))

    async def peek(self, scope: str, *, limit: int, per: float, **options: Unpack[LimitOptions]) -> Decision:
        """As `Limits.peek`."""
        ask, _ = limits.checked(scope, 0, limit=limit, per=per, **options)
        return await self._client._run(limits.peek(ask))

    async def reset(self, scope: str, *, per: float, algorithm: Algorithm = FIXED) -> bool:
        """As `Limits.reset`."""
        return await self._client._run(limits.reset(scope, per, algorithm))

    async def all(self) -> list[LimitInUse]:
        """As `Limits.all`."""
        return await self._client._run(limits.in_use())
