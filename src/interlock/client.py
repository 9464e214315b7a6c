"""What both clients share. `threads` and `tasks` run the protocol for one of them each."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import machine
from .audience import Audience
from .errors import StoreUnavailable
from .renewal import Renewals
from .room import Room
from .stores import Store, StoreConfig, configure

if TYPE_CHECKING:
    from .lease import BaseLease
    from .protocol.effects import Hold

L = TypeVar("L", bound="BaseLease")

CLOSING_LIMIT = 5.0  # seconds for those who wait to take back what they have asked for
BUSY_LIMIT = 10.0  # seconds that a local file may stay locked by somebody else


def _pause(attempt: int) -> float:
    """Between two attempts on a store that is in use for a moment."""
    import random  # noqa: PLC0415 - slow to import, and seldom needed

    return random.uniform(0.0001, min(0.005, 0.0005 * 2 ** min(attempt, 4)))


def refuse_generator(function: Callable[..., Any], instead: str) -> None:
    import inspect  # noqa: PLC0415 - slow to import, and for decorators only

    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__name__} is a generator, which runs after the call: use {instead}() inside it."
        )


class Client:
    """Configuration, the waiting room, the leases to renew, and forks."""

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
        self._audience = Audience()

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

    def _take(self, kind: Callable[..., L], hold: Hold) -> L:
        """A lease of this kind, from now on watched over."""
        lease = kind(self, hold.won, self._config.keys(hold.won.request.scope), hold.on_lost)
        try:
            self._watch(lease)
        except BaseException:
            self._renewals.remove(lease)
            raise
        return lease

    def _scope_of(self, scope: Any, args: Any, kwargs: Any) -> str:
        name: str = scope(*args, **kwargs) if callable(scope) else scope
        return name

    def _too_busy(self, attempt: int, since: float) -> float:
        """How long to pause before the next attempt."""
        if machine.now() - since > BUSY_LIMIT:
            raise StoreUnavailable(f"{self.url} has been locked by another program for {BUSY_LIMIT:.0f} s.")
        return _pause(attempt)


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


_forking: list[Client] = []


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
