"""A lease of `AsyncInterlock`, and the `async with` blocks that hold one."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .errors import LeaseLost, StoreUnavailable
from .lease import BaseLease, Block
from .model import Released, Renewed

if TYPE_CHECKING:
    from .tasks import AsyncInterlock


class AsyncLease(BaseLease):
    """A lease of `AsyncInterlock`. In an `async with` block the task is cancelled when it is lost."""

    _client: AsyncInterlock
    _body: asyncio.Task[Any] | None = None
    _cancelled = False

    def when_lost(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            if self._client._loop is not None:
                self._client._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if self._body is not None:
            self._cancelled = True
            self._body.cancel(f"lost the lease on {self.scope!r}")
        if self.on_lost is not None:
            self.on_lost(self)

    async def release(self) -> Released:
        """Give the scope back. Twice is fine; `LeaseLost` if it was lost before."""
        return await self._client._run(self._release_flow())

    async def renew(self, ttl: float | None = None) -> Renewed:
        """Prolong now, from now on by `ttl`."""
        return await self._client._run(self._renew_flow(ttl))

    async def progress(self, value: str, percent: float | None = None, message: str | None = None) -> None:
        """Tell how far it is, as the status of the scope. It stands for as long as the lease is held."""
        await self._client._run(self._progress_flow(value, percent, message))

    async def __aenter__(self) -> Self:
        self._body = _task()
        self._keep()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        if self._cancelled and not isinstance(error, asyncio.CancelledError):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # our own cancellation has not arrived yet: not in the release, please
        try:
            await self.release()
        except (LeaseLost, StoreUnavailable) as failure:
            ours = self._cancelled and body is not None and body.uncancel() == 0
            if error is None or (ours and isinstance(error, asyncio.CancelledError)):
                raise failure from error
            error.add_note(str(failure))


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # in a forked child the parent's loop does not run
        return None


class AsyncLock(Block):
    """`async with il.lock(…) as lease:`; the body's task is cancelled when the lease is lost."""

    _client: AsyncInterlock

    async def __aenter__(self) -> AsyncLease:
        lease = await self._client._acquire(self._request(), self.on_lost)
        self._leases.append((_task(), lease))
        return await lease.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease: AsyncLease = self._leave(_task())
        await lease.__aexit__(kind, error, trace)
