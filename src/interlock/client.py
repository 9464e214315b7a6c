"""`Interlock` and `AsyncInterlock`: the same protocol, run by threads and by tasks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import random
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from . import machine, protocol
from .errors import ClientClosed, InterlockError, StoreUnavailable
from .lease import AsyncLease, AsyncLock, Lease, Lock
from .model import Broken, Released, Renewed, ScopeInfo
from .protocol import AcquireOptions, Await, Call, Effect, Enter, Leave, Listen, Request, Sleep, Wake
from .pump import Pump
from .renewal import Held, Renewals
from .room import Place, Room
from .stores import Store, StoreConfig, configure
from .stores.base import Busy, Renew

P = ParamSpec("P")
R = TypeVar("R")

CLOSING_LIMIT = 5.0  # seconds for those who wait to take back what they have asked for
BUSY_LIMIT = 10.0  # seconds that a local file may stay locked by somebody else


def _pause(attempt: int) -> float:
    """Between two attempts on a store that is in use for a moment."""
    return random.uniform(0.0001, min(0.005, 0.0005 * 2 ** min(attempt, 4)))


def _refuse_generator(function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__name__} is a generator, which runs after the call: use lock() inside it."
        )


class _Client:
    """What both clients share: configuration, the waiting room, the leases to renew, and forks."""

    _store: Store

    def __init__(self, url: str | None = None, *, prefix: str | None = None) -> None:
        self._config: StoreConfig = configure(url, prefix=prefix)
        self._start()
        _clients.add(self)

    def _start(self) -> None:
        self._generation = object()
        self._renewals = Renewals()
        self._open()

    def _open(self) -> None:
        """What belongs to one process, or to one event loop in it."""
        self._room = Room(self._config.window)

    @property
    def url(self) -> str:
        """Where the store is, without the password."""
        return self._config.shown

    def _before_fork(self) -> None:
        self._store.hold_still()

    def _after_fork_in_parent(self) -> None:
        self._store.go_on()

    def _after_fork_in_child(self) -> None:
        self._store.go_on()
        self._store.forget()
        self._start()

    def _watch(self, lease: Any) -> None:
        """Renew the lease when that is due, and tell when it is lost, if either was asked for."""

    def _scope_of(self, scope: Any, args: Any, kwargs: Any) -> str:
        name: str = scope(*args, **kwargs) if callable(scope) else scope
        return name

    def _too_busy(self, attempt: int, since: float) -> float:
        """How long to pause before the next attempt."""
        if machine.now() - since > BUSY_LIMIT:
            raise StoreUnavailable(f"{self.url} has been locked by another program for {BUSY_LIMIT:.0f} s.")
        return _pause(attempt)


_clients: weakref.WeakSet[_Client] = weakref.WeakSet()


_forking: list[_Client] = []


def _before_fork() -> None:
    _forking[:] = _clients
    for client in _forking:
        client._before_fork()


def _after_fork_in_parent() -> None:
    for client in _forking:
        client._after_fork_in_parent()
    _forking.clear()


def _after_fork_in_child() -> None:
    for client in _forking:
        client._after_fork_in_child()
    _forking.clear()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)


class Interlock(_Client):
    """Locks, semaphores and leases for threads. One instance serves a whole program.

    `url`: redis://, rediss://, unix://, redis+sentinel:// or sqlite:///path; none means the environment's
    INTERLOCK_URL, else a file of the user's own.
    """

    def _open(self) -> None:
        super()._open()
        self._store = self._config.open()
        self._pump = Pump(self._read_signals)
        self._keeper: threading.Thread | None = None
        self._keeper_wakes = threading.Condition()
        self._closed = False

    # ------------------------------------------------------------------ what people use

    def lock(
        self,
        scope: str,
        *,
        on_lost: Callable[[Lease], object] | None = None,
        **options: Unpack[AcquireOptions],
    ) -> Lock:
        """Hold a scope for a `with` block: `with il.lock("excel-42", ttl=30, wait=60) as lease:`.

        ttl: seconds after which the lease ends unless it is renewed, which happens by itself (30).
        wait: seconds to wait in line; 0 fails at once with `LockHeld`, None waits for as long as it takes.
        permits: how many may hold the scope at a time (1).
        lock_id, execution_id, workflow_id, workflow_name, label: who holds it, for others to see.
        on_lost: called with the lease, in another thread, when it is lost.
        """
        return Lock(self, scope, options, on_lost)

    def exclusive(
        self, scope: str | Callable[..., str], **options: Unpack[AcquireOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """The decorator: each call of the function holds the scope. Takes what `lock` takes.

        The scope may be a function of the call's arguments: `@il.exclusive(lambda file: f"excel-{file}")`.
        """
        if isinstance(scope, str):
            protocol.request(scope, renews=True, **options)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{function.__name__} is async: decorate it with AsyncInterlock.exclusive.")
            _refuse_generator(function)

            @functools.wraps(function)
            def exclusively(*args: P.args, **kwargs: P.kwargs) -> R:
                with self.lock(self._scope_of(scope, args, kwargs), **options):
                    return function(*args, **kwargs)

            return exclusively

        return decorate

    def acquire(
        self,
        scope: str,
        *,
        renew: bool = False,
        on_lost: Callable[[Lease], object] | None = None,
        **options: Unpack[AcquireOptions],
    ) -> Lease:
        """Take a lease without a `with`. Takes what `lock` takes.

        It ends after its ttl unless you call `renew`, or pass renew=True to have it renewed while this
        process lives.
        """
        return self._acquire(protocol.request(scope, renews=renew, **options), on_lost)

    def release(self, scope: str, lock_id: str) -> Released:
        """Give back a lease by its lock_id. `NotOwner` if somebody else holds the scope."""
        return self._run(protocol.release(scope, lock_id))

    def renew(self, scope: str, lock_id: str, *, ttl: float = protocol.DEFAULT_TTL) -> Renewed:
        """Let the lease end `ttl` seconds from now. `NotOwner` if it has ended already."""
        return self._run(protocol.renew(scope, lock_id, ttl))

    def break_(self, scope: str) -> Broken:
        """Take the scope from whoever holds it, and hand it to the next in line."""
        return self._run(protocol.break_(scope))

    def show(self, scope: str) -> ScopeInfo:
        """Who holds the scope and who waits for it."""
        return self._run(protocol.show(scope))

    def locks(self) -> list[ScopeInfo]:
        """All scopes that are held or waited for."""
        return self._run(protocol.locks())

    def close(self) -> None:
        """Drop all connections. Leases that are still held end with their ttl; whoever waits is told."""
        with self._keeper_wakes:
            self._closed = True
            self._keeper_wakes.notify()
        with self._pump.lock:
            for place in self._room.feed([("all",)], machine.now()):
                self._pump.poke(place)
        left_by = machine.now() + CLOSING_LIMIT
        while self._room and machine.now() < left_by:  # they take back what they have asked for
            time.sleep(0.001)
        self._store.close()
        self._pump.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ running the protocol

    def _acquire(self, req: Request, on_lost: Callable[[Lease], object] | None) -> Lease:
        if self._closed:
            raise ClientClosed
        won = self._run(protocol.acquire(req, self._room, self._store.listening))
        lease = Lease(self, won, self._config.keys(req.scope), on_lost)
        try:
            self._watch(lease)
        except BaseException:
            lease.release()
            raise
        return lease

    def _run(self, flow: Generator[Effect, Any, R]) -> R:
        """Do what the flow asks for, until it returns."""
        result: Any = None
        error: BaseException | None = None
        while True:
            try:
                effect: Effect = flow.send(result) if error is None else flow.throw(error)
            except StopIteration as stop:
                value: R = stop.value
                return value
            result = error = None
            try:
                result = self._call(effect) if type(effect) is Call else self._perform(effect)
            except BaseException as raised:
                error = raised

    def _call(self, effect: Call) -> Any:
        if not effect.shielded:
            return self._attempt(effect)
        try:
            return self._attempt(effect)
        except InterlockError:
            raise
        except BaseException:  # Ctrl-C: not before this is done
            with contextlib.suppress(InterlockError):
                self._attempt(effect)
            raise

    def _attempt(self, effect: Call) -> Any:
        attempt, since = 0, 0.0
        while True:
            try:
                if effect.tracked:
                    return self._store.call_tracked(effect.operation, self._pump)
                return self._store.call(effect.operation)
            except Busy:
                since = since or machine.now()
                time.sleep(self._too_busy(attempt, since))
                attempt += 1

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Listen):
            if self._closed:
                raise ClientClosed
            return self._store.listen()
        if isinstance(effect, Enter):
            with self._pump.lock:
                return self._room.enter(effect.scope, effect.lock_id)
        if isinstance(effect, Leave):
            with self._pump.lock:
                heir = self._room.leave(effect.place)
                if heir is not None:
                    self._pump.poke(heir)
                elif not self._room.is_waiting(effect.place.scope):
                    self._store.unwatch(effect.place.scope)
            return None
        if isinstance(effect, Await):
            return self._await(effect.place, effect.deadline)
        if isinstance(effect, Wake):
            for place in effect.places:
                self._pump.poke(place)
            return None
        assert isinstance(effect, Sleep)
        return time.sleep(effect.seconds)

    def _await(self, place: Place, deadline: float) -> None:
        self._pump.wait(
            place, lambda: place.look, lambda: min(deadline, self._room.due(place)) - machine.now()
        )

    def _read_signals(self, timeout: float, bell: int) -> list[object]:
        """Run by whichever waiting thread has its turn at the connection."""
        ready, signals = self._store.read(timeout, bell)
        with self._pump.lock:
            return [*ready, *self._room.feed(signals, machine.now())]

    # ------------------------------------------------------------------ renewing

    def _watch(self, lease: Lease) -> None:
        if not lease.watched:
            return
        with self._keeper_wakes:
            wake = self._renewals.add(lease)
            if self._keeper is None:
                keeper = threading.Thread(
                    target=_keep_renewing, args=(weakref.ref(self),), name="interlock-renewal", daemon=True
                )
                keeper.start()
                self._keeper = keeper
            elif wake:
                self._keeper_wakes.notify()

    def _renew_due(self) -> None:
        sent = machine.now()
        due = self._renewals.due(sent)
        if not due:
            return
        # If the store is silent for too long, whoever loses a lease meanwhile has to be told.
        patience = max(0.05, self._renewals.first_end() - sent)
        try:
            answers = self._store.call_many([operation for _, operation in due], patience)
        except Exception as error:
            answers = [error] * len(due)
        for (held, operation), answer in zip(due, answers, strict=True):
            self._renewals.settle(held, operation, sent, machine.now(), answer)


def _keep_renewing(client_ref: weakref.ref[Interlock]) -> None:
    """The renewal thread. It ends with its client, which it keeps alive while there is a lease to renew."""
    while True:
        client = client_ref()
        if client is None or client._closed:
            return
        client._renew_due()
        wakes = client._keeper_wakes
        with wakes:
            if client._closed:
                return
            now = machine.now()
            pause = client._renewals.sleep_until(now) - now
            if not client._renewals:
                del client
            wakes.wait(min(max(pause, 0.0), 60.0))


class AsyncInterlock(_Client):
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
            protocol.request(scope, renews=True, **options)

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            _refuse_generator(function)

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
        return await self._acquire(protocol.request(scope, renews=renew, **options), on_lost)

    async def release(self, scope: str, lock_id: str) -> Released:
        """As `Interlock.release`."""
        return await self._run(protocol.release(scope, lock_id))

    async def renew(self, scope: str, lock_id: str, *, ttl: float = protocol.DEFAULT_TTL) -> Renewed:
        """As `Interlock.renew`."""
        return await self._run(protocol.renew(scope, lock_id, ttl))

    async def break_(self, scope: str) -> Broken:
        """As `Interlock.break_`."""
        return await self._run(protocol.break_(scope))

    async def show(self, scope: str) -> ScopeInfo:
        """As `Interlock.show`."""
        return await self._run(protocol.show(scope))

    async def locks(self) -> list[ScopeInfo]:
        """As `Interlock.locks`."""
        return await self._run(protocol.locks())

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
        if self._closed:
            raise ClientClosed
        self._bind()
        won = await self._run(protocol.acquire(req, self._room, self._store.listening))
        lease = AsyncLease(self, won, self._config.keys(req.scope), on_lost)
        self._watch(lease)
        return lease

    def _bind(self) -> None:
        """Connections belong to a loop; a program's second `asyncio.run` starts with new ones."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
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
                if type(effect) is not Call:
                    result = await self._perform(effect)
                elif effect.shielded:
                    result = await _to_the_end(self._call(effect))
                else:
                    result = await self._call(effect)
            except BaseException as raised:
                error = raised

    async def _call(self, effect: Call) -> Any:
        attempt, since = 0, 0.0
        while True:
            try:
                return await self._store.call(effect.operation, effect.tracked)
            except Busy:
                since = since or machine.now()
                await asyncio.sleep(self._too_busy(attempt, since))
                attempt += 1

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Listen):
            if self._closed:
                raise ClientClosed
            return await self._store.listen()
        if isinstance(effect, Enter):
            return self._room.enter(effect.scope, effect.lock_id)
        if isinstance(effect, Leave):
            heir = self._room.leave(effect.place)
            if heir is not None:
                _poke(heir)
            elif not self._room.is_waiting(effect.place.scope):
                self._store.unwatch(effect.place.scope)
            return None
        if isinstance(effect, Await):
            return await self._await(effect.place, effect.deadline)
        if isinstance(effect, Wake):
            for place in effect.places:
                _poke(place)
            return None
        assert isinstance(effect, Sleep)
        return await asyncio.sleep(effect.seconds)

    async def _await(self, place: Place, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        while not place.look:
            timeout = min(deadline, self._room.due(place)) - machine.now()
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
        for place in self._room.feed(signals, machine.now()):
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
            answer = await self._call(Call(operation))
        except Exception as error:
            answer = error
        self._renewals.settle(held, operation, sent, machine.now(), answer)
        self._keeper_wakes.set()


def _poke(place: Place) -> None:
    waker = place.waker
    if isinstance(waker, asyncio.Future) and not waker.done():
        waker.set_result(None)


async def _to_the_end(work: Coroutine[Any, Any, R]) -> R:
    """Await work although we are cancelled meanwhile; the cancellation comes after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:
            break
    if cancelled is not None:
        raise cancelled
    return task.result()
