"""`Interlock`: the protocol, run by threads."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from . import machine
from .audience import Seat
from .client import CLOSING_LIMIT, Client, refuse_generator
from .errors import ClientClosed, InterlockError
from .lease import Lease, Lock
from .model import Broken, CleanedUp, Event, Released, Renewed, ScopeInfo
from .protocol import leases
from .protocol.effects import Await, Call, Effect, Enter, Hold, Leave, Listen, Rise, Sit, Sleep, Wake
from .protocol.leases import AcquireOptions, Request
from .pump import Pump
from .room import Place
from .stores.base import Busy, Signal

if TYPE_CHECKING:
    from .following import Following
    from .limits import Limits
    from .protocol.limits import LimitOptions
    from .protocol.notices import Follower
    from .status import Statuses

# What not everybody uses is imported by those who do, so that a command starts quickly.
# ruff: noqa: PLC0415

P = ParamSpec("P")
R = TypeVar("R")


class Interlock(Client):
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
            leases.request(scope, renews=True, **options)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            refuse_coroutine(function, "exclusive")
            refuse_generator(function, "lock")

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
        return self._acquire(leases.request(scope, renews=renew, **options), on_lost)

    def release(self, scope: str, lock_id: str) -> Released:
        """Give back a lease by its lock_id. `NotOwner` if somebody else holds the scope."""
        return self._run(leases.release(scope, lock_id))

    def renew(self, scope: str, lock_id: str, *, ttl: float = leases.DEFAULT_TTL) -> Renewed:
        """Let the lease end `ttl` seconds from now. `NotOwner` if it has ended already."""
        return self._run(leases.renew(scope, lock_id, ttl))

    def break_(self, scope: str) -> Broken:
        """Take the scope from whoever holds it, and hand it to the next in line."""
        return self._run(leases.break_(scope))

    def show(self, scope: str) -> ScopeInfo:
        """Who holds the scope and who waits for it."""
        return self._run(leases.show(scope))

    def locks(self) -> list[ScopeInfo]:
        """All scopes that are held or waited for."""
        return self._run(leases.locks())

    @property
    def limit(self) -> Limits:
        """Rate limits: `il.limit("api", limit=100, per=60).allowed`."""
        from .limits import Limits

        return Limits(self)

    def limited(
        self,
        scope: str | Callable[..., str],
        *,
        limit: int,
        per: float,
        wait: float | None = 0,
        **options: Unpack[LimitOptions],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """The decorator: a rate limit on the calls of a function; `LimitExceeded` beyond it.

        Takes what `limit` takes. The scope may be a function of the call's arguments.
        """
        from .protocol import limits

        if isinstance(scope, str):
            limits.checked(scope, wait, limit=limit, per=per, **options)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            refuse_coroutine(function, "limited")
            refuse_generator(function, "limit")

            @functools.wraps(function)
            def within_limit(*args: P.args, **kwargs: P.kwargs) -> R:
                name = self._scope_of(scope, args, kwargs)
                with self.limit(name, limit=limit, per=per, wait=wait, **options):
                    return function(*args, **kwargs)

            return within_limit

        return decorate

    def once(self, key: str, per: float = 60) -> bool:
        """True for the first caller, false for all others until `per` seconds are over."""
        from .protocol import limits

        return self._run(limits.once(key, per))

    @property
    def status(self) -> Statuses:
        """Progress for others to read: `il.status.set("import", "working", percent=40)`."""
        from .status import Statuses

        return Statuses(self)

    def cleanup(self, execution_id: str, scopes: Iterable[str] | None = None) -> CleanedUp:
        """Free all that an execution holds and waits for, on whatever scope; nothing else.

        `scopes`: look there too, for locks that n8n's own sub-workflows took for it.
        """
        from .protocol import cleanup

        return self._run(cleanup.cleanup(execution_id, scopes))

    def events(self) -> Following[Follower, Event]:
        """What happens in the store: `for event in il.events(): …`.

        From the first step on, or from the beginning of a `with il.events() as events:` block.
        """
        from .following import Following
        from .protocol import notices

        return Following(self, notices.Follower(), notices.next_event, notices.follow)

    def close(self) -> None:
        """Drop all connections. Leases that are still held end with their ttl; whoever waits is told."""
        with self._keeper_wakes:
            self._closed = True
            self._keeper_wakes.notify()
        with self._pump.lock:
            everybody: list[Signal] = [("all",)]
            for place in (*self._room.feed(everybody, machine.now()), *self._audience.feed(everybody)):
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
        return self._hold(leases.acquire(req, self._room, self._store.listening, on_lost))

    def _hold(self, taking: Generator[Effect, Any, Lease]) -> Lease:
        if self._closed:
            raise ClientClosed
        return self._run(taking)

    def _run(self, flow: Generator[Effect, Any, R]) -> R:
        """Do what the flow asks for, until it returns."""
        effect: Effect | None = None
        result: Any = None
        error: BaseException | None = None
        while True:
            try:  # around all of it: Ctrl-C may come between any two steps, and the flow has to hear of it
                while True:
                    effect = flow.send(result) if error is None else flow.throw(error)
                    result = error = None
                    result = self._carry_out(effect)
            except StopIteration as stop:
                value: R = stop.value
                return value
            except BaseException as raised:
                if flow.gi_frame is None:  # type: ignore[attr-defined]  # it is the flow's own
                    raise
                if not isinstance(raised, Exception) and type(effect) is Call and effect.shielded:
                    with contextlib.suppress(InterlockError):  # not before this is done
                        self._insist(effect)
                error = raised

    def _carry_out(self, effect: Effect) -> Any:
        try:
            if type(effect) is not Call:
                return self._perform(effect)
            if effect.tracked:
                return self._store.call_tracked(effect.operation, self._pump)
            return self._store.call(effect.operation)
        except Busy:
            return self._insist(effect)

    def _insist(self, effect: Any) -> Any:
        """Until the store has time for it."""
        attempt, since = 0, machine.now()
        while True:
            try:
                return self._store.call(effect.operation)
            except Busy:
                time.sleep(self._too_busy(attempt, since))
                attempt += 1

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Listen):
            if self._closed:
                raise ClientClosed
            return self._store.listen(effect.events)
        if isinstance(effect, Sit):
            with self._pump.lock:
                self._audience.sit(effect.seat)
            return None
        if isinstance(effect, Rise):
            with self._pump.lock:
                self._audience.rise(effect.seat)
                self._pump.poke(effect.seat)
            return None
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
        if isinstance(effect, Hold):
            return self._take(Lease, effect)
        if isinstance(effect, Await):
            return self._await(effect.place, effect.deadline)
        if isinstance(effect, Wake):
            for place in effect.places:
                self._pump.poke(place)
            return None
        assert isinstance(effect, Sleep)
        return time.sleep(effect.seconds)

    def _await(self, place: Place | Seat, deadline: float) -> None:
        self._pump.wait(place, lambda: place.look, lambda: min(deadline, place.due) - machine.now())

    def _read_signals(self, timeout: float, bell: int) -> list[object]:
        """Run by whichever waiting thread has its turn at the connection."""
        ready, signals = self._store.read(timeout, bell)
        with self._pump.lock:
            return [*ready, *self._room.feed(signals, machine.now()), *self._audience.feed(signals)]

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


def refuse_coroutine(function: Callable[..., Any], decorator: str) -> None:
    import inspect

    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{function.__name__} is async: decorate it with AsyncInterlock.{decorator}.")


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
