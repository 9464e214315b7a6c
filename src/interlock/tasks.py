"""`AsyncInterlock`: the protocol, run by tasks of one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from . import machine
from .async_lease import AsyncLease, AsyncLock
from .audience import Seat
from .client import CLOSING_LIMIT, Client, refuse_generator
from .errors import ClientClosed, InterlockError
from .following import AsyncFollowing
from .limits import AsyncLimits
from .model import Broken, CleanedUp, Event, Released, Renewed, ScopeInfo
from .protocol import cleanup, leases, limits, notices
from .protocol.effects import Await, Call, Effect, Enter, Hold, Leave, Listen, Rise, Sit, Sleep, Wake
from .protocol.leases import AcquireOptions, Request
from .protocol.limits import LimitOptions
from .protocol.notices import Follower
from .renewal import Held
from .room import Place
from .status import AsyncStatuses
from .stores.base import Busy, Renew

P = ParamSpec("P")
R = TypeVar("R")


class AsyncInterlock(Client):
    """`Interlock` for asyncio: the same names, awaited. One instance belongs to one event loop."""

    def _open(self) -> None:
        super()._open()
        self._store = self._config.open_async(self._on_signals)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._keeper_wakes = asyncio.Event()
        self._renewing: set[asyncio.Future[None]] = set()
        self._closed = False

    # ------------------------------------------------------------------ what people use

    def lock(
        self,
        scope: str,
        *,
        on_lost: Callable[[AsyncLease], object] | None = None,
        **options: Unpack[AcquireOptions],
    ) -> AsyncLock:
        """As `Interlock.lock`, for `async with`. The task is cancelled when the lease is lost."""
        return AsyncLock(self, scope, options, on_lost)

    def exclusive(
        self, scope: str | Callable[..., str], **options: Unpack[AcquireOptions]
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """As `Interlock.exclusive`, for async functions."""
        if isinstance(scope, str):
            leases.request(scope, renews=True, **options)

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            refuse_generator(function, "lock")

            @functools.wraps(function)
            async def exclusively(*args: P.args, **kwargs: P.kwargs) -> R:
                async with self.lock(self._scope_of(scope, args, kwargs), **options):
                    return await function(*args, **kwargs)

            return exclusively

        return decorate

    async def acquire(
        self,
        scope: str,
        *,
        renew: bool = False,
        on_lost: Callable[[AsyncLease], object] | None = None,
        **options: Unpack[AcquireOptions],
    ) -> AsyncLease:
        """As `Interlock.acquire`."""
        return await self._acquire(leases.request(scope, renews=renew, **options), on_lost)

    async def release(self, scope: str, lock_id: str) -> Released:
        """As `Interlock.release`."""
        return await self._run(leases.release(scope, lock_id))

    async def renew(self, scope: str, lock_id: str, *, ttl: float = leases.DEFAULT_TTL) -> Renewed:
        """As `Interlock.renew`."""
        return await self._run(leases.renew(scope, lock_id, ttl))

    async def break_(self, scope: str) -> Broken:
        """As `Interlock.break_`."""
        return await self._run(leases.break_(scope))

    async def show(self, scope: str) -> ScopeInfo:
        """As `Interlock.show`."""
        return await self._run(leases.show(scope))

    async def locks(self) -> list[ScopeInfo]:
        """As `Interlock.locks`."""
        return await self._run(leases.locks())

    @property
    def limit(self) -> AsyncLimits:
        """As `Interlock.limit`."""
        return AsyncLimits(self)

    def limited(
        self,
        scope: str | Callable[..., str],
        *,
        limit: int,
        per: float,
        wait: float | None = 0,
        **options: Unpack[LimitOptions],
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """As `Interlock.limited`, for async functions."""
        if isinstance(scope, str):
            limits.checked(scope, wait, limit=limit, per=per, **options)

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            refuse_generator(function, "limit")

            @functools.wraps(function)
            async def within_limit(*args: P.args, **kwargs: P.kwargs) -> R:
                name = self._scope_of(scope, args, kwargs)
                async with self.limit(name, limit=limit, per=per, wait=wait, **options):
                    return await function(*args, **kwargs)

            return within_limit

        return decorate

    async def once(self, key: str, per: float = 60) -> bool:
        """As `Interlock.once`."""
        return await self._run(limits.once(key, per))

    @property
    def status(self) -> AsyncStatuses:
        """As `Interlock.status`."""
        return AsyncStatuses(self)

    async def cleanup(self, execution_id: str, scopes: Iterable[str] | None = None) -> CleanedUp:
        """As `Interlock.cleanup`."""
        return await self._run(cleanup.cleanup(execution_id, scopes))

    def events(self) -> AsyncFollowing[Follower, Event]:
        """As `Interlock.events`: `async for event in il.events(): …`."""
        return AsyncFollowing(self, Follower(), notices.next_event, notices.follow)

    async def close(self) -> None:
        """Drop all connections. Leases that are still held end with their ttl; whoever waits is told."""
        self._closed = True
        self._on_signals([("all",)])
        left_by = machine.now() + CLOSING_LIMIT
        while self._room and machine.now() < left_by:  # noqa: ASYNC110 - they take back what they asked for
            await asyncio.sleep(0.001)
        for task in (self._keeper, *self._renewing):
            if task is not None:
                task.cancel()
        self._keeper = None
        await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------------ running the protocol

    async def _acquire(self, req: Request, on_lost: Callable[[AsyncLease], object] | None) -> AsyncLease:
        self._bind()
        return await self._hold(leases.acquire(req, self._room, self._store.listening, on_lost))

    async def _hold(self, taking: Generator[Effect, Any, AsyncLease]) -> AsyncLease:
        if self._closed:
            raise ClientClosed
        return await self._run(taking)

    def _bind(self) -> None:
        """Connections belong to a loop; a program's second `asyncio.run` starts with new ones."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                if self._loop.is_running():
                    raise InterlockError(
                        "This AsyncInterlock is in use in another event loop: make one for each loop."
                    )
                self._store.forget()
                self._open()
            self._loop = loop
            if self._renewals:
                self._keeper = loop.create_task(self._keep_renewing())

    async def _run(self, flow: Generator[Effect, Any, R]) -> R:
        """Do what the flow asks for, until it returns."""
        result: Any = None
        error: BaseException | None = None
        while True:
            try:
                effect: Effect = flow.send(result) if error is None else flow.throw(error)
            except StopIteration as stop:
                value: R = stop.value
                return value
            self._bind()
            result = error = None
            try:
                try:
                    if type(effect) is Call:
                        result = await self._store.call(effect.operation, effect.tracked)
                    else:
                        result = await self._perform(effect)
                except Busy:
                    result = await self._insist(effect)
            except asyncio.CancelledError as cancelled:
                if type(effect) is Call and effect.shielded:  # it may not have been carried out yet
                    await _to_the_end(self._insist(effect))
                error = cancelled
            except BaseException as raised:
                error = raised

    async def _insist(self, effect: Any) -> Any:
        """Until the store has time for it."""
        attempt, since = 0, machine.now()
        while True:
            try:
                return await self._store.call(effect.operation)
            except Busy:
                await asyncio.sleep(self._too_busy(attempt, since))
                attempt += 1

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Listen):
            if self._closed:
                raise ClientClosed
            return await self._store.listen(effect.events)
        if isinstance(effect, Sit):
            self._audience.sit(effect.seat)
            return None
        if isinstance(effect, Rise):
            self._audience.rise(effect.seat)
            _poke(effect.seat)
            return None
        if isinstance(effect, Enter):
            return self._room.enter(effect.scope, effect.lock_id)
        if isinstance(effect, Leave):
            heir = self._room.leave(effect.place)
            if heir is not None:
                _poke(heir)
            elif not self._room.is_waiting(effect.place.scope):
                self._store.unwatch(effect.place.scope)
            return None
        if isinstance(effect, Hold):
            return self._take(AsyncLease, effect)
        if isinstance(effect, Await):
            return await self._await(effect.place, effect.deadline)
        if isinstance(effect, Wake):
            for place in effect.places:
                _poke(place)
            return None
        assert isinstance(effect, Sleep)
        return await asyncio.sleep(effect.seconds)

    async def _await(self, place: Place | Seat, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        while not place.look:
            timeout = min(deadline, place.due) - machine.now()
            if timeout <= 0:
                return
            place.waker = poked = loop.create_future()
            timer = None
            if timeout < machine.FAR:
                timer = loop.call_later(timeout, _poke, place)
            try:
                await poked
            finally:
                place.waker = None
                if timer is not None:
                    timer.cancel()

    def _on_signals(self, signals: list[tuple[str, ...]]) -> None:
        woken: list[Place | Seat] = [*self._room.feed(signals, machine.now()), *self._audience.feed(signals)]
        for place in woken:
            _poke(place)

    # ------------------------------------------------------------------ renewing

    def _watch(self, lease: AsyncLease) -> None:
        if not lease.watched:
            return
        wake = self._renewals.add(lease)
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._keep_renewing())
        elif wake:
            self._keeper_wakes.set()

    async def _keep_renewing(self) -> None:
        """Ends after a minute without leases, so that a client that is thrown away does not live on."""
        while True:
            self._keeper_wakes.clear()
            for held, operation in self._renewals.due(machine.now()):
                renewing = asyncio.ensure_future(self._renew(held, operation))
                self._renewing.add(renewing)
                renewing.add_done_callback(self._renewing.discard)
            now = machine.now()
            pause = self._renewals.sleep_until(now) - now
            try:
                async with asyncio.timeout(min(max(pause, 0.0), 60.0)):
                    await self._keeper_wakes.wait()
            except TimeoutError:
                if not self._renewals:
                    return

    async def _renew(self, held: Held, operation: Renew) -> None:
        sent = machine.now()
        try:
            answer = await self._insist(Call(operation))
        except Exception as error:
            answer = error
        self._renewals.settle(held, operation, sent, machine.now(), answer)
        self._keeper_wakes.set()


def _poke(place: Place | Seat) -> None:
    waker = place.waker
    if isinstance(waker, asyncio.Future) and not waker.done():
        waker.set_result(None)


async def _to_the_end(work: Coroutine[Any, Any, Any]) -> None:
    """Await work although we are cancelled once more meanwhile. That it failed is of no interest any more."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError, InterlockError):
            await asyncio.shield(task)
