"""Iterators over what changes: a status, or all events. They end when their client is closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from .audience import Seat
from .errors import ClientClosed
from .protocol.effects import Effect, rise, sit

if TYPE_CHECKING:
    from .tasks import AsyncInterlock
    from .threads import Interlock

S = TypeVar("S", bound=Seat)
T = TypeVar("T")
Step = Callable[[S], Generator[Effect, Any, T]]


class Following(Iterator[T], Generic[S, T]):
    """For `Interlock`. It may be closed early, by a `with` block or from another thread."""

    def __init__(self, client: Interlock, seat: S, following: Step[S, T], begin: Step[S, None] = sit) -> None:
        self._client, self._seat, self._next, self._begin = client, seat, following, begin

    def __next__(self) -> T:
        try:
            return self._client._run(self._next(self._seat))
        except ClientClosed:
            raise StopIteration from None

    def close(self) -> None:
        self._client._run(rise(self._seat))

    def __enter__(self) -> Self:
        self._client._run(self._begin(self._seat))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncFollowing(AsyncIterator[T], Generic[S, T]):
    """For `AsyncInterlock`."""

    def __init__(
        self, client: AsyncInterlock, seat: S, following: Step[S, T], begin: Step[S, None] = sit
    ) -> None:
        self._client, self._seat, self._next, self._begin = client, seat, following, begin

    async def __anext__(self) -> T:
        try:
            return await self._client._run(self._next(self._seat))
        except ClientClosed:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._client._run(rise(self._seat))

    async def __aenter__(self) -> Self:
        await self._client._run(self._begin(self._seat))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
