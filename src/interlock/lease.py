"""A lease as its holder sees it, and the `with` blocks that hold one. For tasks: async_lease.py."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from . import machine
from .errors import LeaseLost, NotOwner, StoreUnavailable
from .model import Released, Renewed
from .protocol import leases, status
from .protocol.effects import Effect
from .protocol.leases import AcquireOptions, Request, Won
from .renewal import Held, taken_by

if TYPE_CHECKING:
    from .client import Client
    from .threads import Interlock


class BaseLease(Held):
    """One hold on a scope. Its attributes carry the names of the contract."""

    acquired = True

    def __init__(
        self, client: Client, won: Won, keys: tuple[str, str], on_lost: Callable[[Any], object] | None
    ) -> None:
        asked, grant = won.request.first, won.grant
        self._client = client
        self._generation = client._generation
        self.on_lost = on_lost
        self._released = False
        self._maybe_released = False  # an answer was lost
        self._fields = won.request.fields
        self.scope = asked.scope
        self.lock_id = asked.lock_id
        self.fence = grant.fence
        """Grows with every lease on the scope; whatever is protected can refuse an older one."""
        self.locked_at = grant.locked_at
        self.count = grant.total
        self.permits = asked.permits
        self.ttl = asked.ttl / 1000
        self.key, self.meta_key = keys
        self.renews = asked.renews
        self.valid_until = won.valid_until
        self.due = won.valid_until - self.ttl * 2 / 3 if asked.renews else math.inf

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost else "held"
        return f"<Lease {self.scope!r} lock_id={self.lock_id} fence={self.fence} {state}>"

    @property
    def workflow_id(self) -> str | None:
        return self._fields.workflow_id

    @property
    def workflow_name(self) -> str | None:
        return self._fields.workflow_name

    @property
    def execution_id(self) -> str | None:
        return self._fields.execution_id

    @property
    def label(self) -> str | None:
        return self._fields.label

    @property
    def watched(self) -> bool:
        """Whether somebody has to keep an eye on it."""
        return self.renews or self.on_lost is not None

    @property
    def inherited(self) -> bool:
        """True in a forked child: the lease is the parent's, and only the parent's."""
        return self._generation != self._client._generation

    @property
    def lost(self) -> bool:
        """Whether the lease ended before it was released."""
        if self._released:
            return False
        if self.lost_because is None and not self.inherited and machine.now() >= self.valid_until:
            # Stopped, asleep or cut off for longer than the ttl: don't wait to be told.
            self._client._renewals.remove(self)
            self.lose("its ttl ran out before it could be renewed")
        return self.lost_because is not None

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is still held, as far as is known here; costs no round trip."""
        if self.inherited:
            raise LeaseLost(self.scope, self.lock_id, "it belongs to the process that forked this one")
        if self.lost or self._released:
            raise LeaseLost(self.scope, self.lock_id, self.lost_because or "it was released")

    def _release_flow(self) -> Generator[Effect, Any, Released]:
        self._client._renewals.remove(self)
        if self._released or self.inherited:
            return Released(released=True, idempotent=True, scope=self.scope, lock_id=self.lock_id)
        lost = self.lost_because is not None  # not by the clock: the store knows better
        self._released = True
        try:
            done = yield from leases.give_back(self.scope, self.lock_id, 0 if self.gone else self.fence)
        except NotOwner as error:
            if self._maybe_released:  # by the attempt whose answer was lost; another has it since
                return Released(released=True, idempotent=True, scope=self.scope, lock_id=self.lock_id)
            self._released = False
            self.lose(taken_by(error.holder))
            raise LeaseLost(self.scope, self.lock_id, self.lost_because or "") from None
        except StoreUnavailable as error:
            self._released = False  # so that it can be tried again
            self._maybe_released |= error.maybe_done
            if lost:  # the store could not change that
                raise LeaseLost(self.scope, self.lock_id, self.lost_because or "") from error
            raise
        except BaseException:  # interrupted: it was carried out all the same, or nearly
            self._released, self._maybe_released = False, True
            raise
        if lost or (done.idempotent and not self._maybe_released):
            self._released = False
            self.lose("it expired or was broken")
            raise LeaseLost(self.scope, self.lock_id, self.lost_because or "")
        return done

    def _renew_flow(self, ttl: float | None) -> Generator[Effect, Any, Renewed]:
        self.check()
        sent = machine.now()
        try:
            wanted = self.ttl if ttl is None else ttl
            done = yield from leases.renew(self.scope, self.lock_id, wanted, self.fence)
        except NotOwner as error:
            raise self._is_gone(error) from None
        self.ttl = done.ttl
        self.valid_until = sent + done.ttl
        if self.renews:
            self.due = sent + done.ttl / 3
        if not self._released:
            self._client._watch(self)
        return done

    def _is_gone(self, error: NotOwner) -> LeaseLost:
        self.gone = True
        self._client._renewals.remove(self)
        self.lose(taken_by(error.holder))
        return LeaseLost(self.scope, self.lock_id, self.lost_because or "")

    def _progress_flow(
        self, value: str, percent: float | None, message: str | None
    ) -> Generator[Effect, Any, None]:
        said = status.words(self._fields, self.lock_id, value, percent=percent, message=message)
        self.check()
        try:
            yield from status.report(self.scope, self.lock_id, said)
        except NotOwner as error:
            raise self._is_gone(error) from None

    def _keep(self) -> None:
        """From now on it renews itself."""
        if not self.renews:
            self.renews, self.due = True, self.valid_until - self.ttl * 2 / 3
            self._client._watch(self)


class Lease(BaseLease):
    """A lease of `Interlock`. In a `with` block it renews itself, and is released at the end."""

    _client: Interlock

    def when_lost(self) -> None:
        if self.on_lost is not None:  # in a thread of its own: it may take its time, or fail
            name = f"interlock-lost-{self.scope}"
            teller = threading.Thread(target=self.on_lost, args=(self,), name=name, daemon=True)
            try:
                teller.start()
            except RuntimeError:  # there are no more threads to be had
                self.on_lost(self)

    def release(self) -> Released:
        """Give the scope back. Twice is fine; `LeaseLost` if it was lost before."""
        return self._client._run(self._release_flow())

    def renew(self, ttl: float | None = None) -> Renewed:
        """Prolong now, from now on by `ttl`."""
        return self._client._run(self._renew_flow(ttl))

    def progress(self, value: str, percent: float | None = None, message: str | None = None) -> None:
        """Tell how far it is, as the status of the scope. It stands for as long as the lease is held."""
        self._client._run(self._progress_flow(value, percent, message))

    def __enter__(self) -> Self:
        self._keep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except (LeaseLost, StoreUnavailable) as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # what the body raised matters more


class Block:
    """What `lock(…)` returns. It may be entered again, also by several threads or tasks at once."""

    def __init__(
        self,
        client: Client,
        scope: str,
        options: AcquireOptions,
        on_lost: Callable[[Any], object] | None,
    ) -> None:
        self._client = client
        self._scope = scope
        self._options = options
        self.on_lost = on_lost
        self._generation = client._generation
        self._checked = [leases.request(scope, renews=True, **options)]
        self._leases: list[tuple[object, Any]] = []

    def _request(self) -> Request:
        """Every entry has a lock_id of its own, else two of them would share one lease."""
        try:
            request = self._checked.pop()
        except IndexError:
            request = None
        if request is None or self._generation != self._client._generation:  # forked since
            request = leases.request(self._scope, renews=True, **self._options)
        return request

    def _leave(self, who: object) -> Any:
        """The lease of whoever leaves: the one it took last."""
        entered = list(self._leases)
        # It may be another task than the one that entered, as in some test fixtures.
        entry = next((entry for entry in reversed(entered) if entry[0] == who), entered[-1])
        self._leases.remove(entry)
        return entry[1]


class Lock(Block):
    """`with il.lock(…) as lease:` holds the scope for the block, and renews the lease meanwhile."""

    _client: Interlock

    def __enter__(self) -> Lease:
        lease = self._client._acquire(self._request(), self.on_lost)
        self._leases.append((threading.get_ident(), lease))
        return lease.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease: Lease = self._leave(threading.get_ident())
        lease.__exit__(kind, error, trace)
