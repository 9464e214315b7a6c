"""What the local store is for threads and tasks alike; they differ in how they wait."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from ..base import Acquire, Busy, Operation, Queued, Release, Show, Signal
from .board import Wake
from .engine import Engine

MAILBOX_SIZE = 10  # messages; Linux's default, and what is beyond it is dropped

if TYPE_CHECKING:
    from .. import _SqliteConfig
    from .mailbox import Mailbox


class LocalStore:
    def __init__(self, config: _SqliteConfig) -> None:
        self._engine = Engine(config.file, config.window)
        self._lock = threading.RLock()
        self._mailbox: Mailbox | None = None
        self._watched: dict[str, dict[int, int]] = {}  # scope -> pid -> pidfd

    @property
    def listening(self) -> bool:
        return self._mailbox is not None

    def _run(self, operation: Operation) -> Any:
        with self._lock:
            return self._run_alone(operation)

    def _run_alone(self, operation: Operation) -> Any:
        answer, wakes = self._engine.run(operation)
        self._ring(wakes, operation)
        if isinstance(operation, Acquire) and isinstance(answer, Queued):
            self._watch(operation.scope, answer.pids)
        return answer

    def _ring(self, wakes: list[Wake], operation: Operation) -> None:
        if not wakes:
            return
        from .mailbox import ring  # noqa: PLC0415

        for wake in wakes:
            nobody = not ring(wake.client, wake.text)
            if nobody and wake.text == "claim" and wake.realm == self._engine.realm:
                # It died between our look and our message: any operation clears it away and goes on.
                scope = getattr(operation, "scope", "")
                self._run(Release(scope, "") if scope else Show(scope))

    # ------------------------------------------------------------------ waking

    def _open_mailbox(self) -> Mailbox:
        if self._mailbox is None:
            from .mailbox import Mailbox  # noqa: PLC0415 - slow to import, and nobody has to wait at first

            self._mailbox = Mailbox(self._engine.client)
        return self._mailbox

    def _read_mailbox(self) -> list[Signal]:
        assert self._mailbox is not None
        messages = self._mailbox.drain()
        signals: list[Signal] = [tuple(text.split("\n")) for text in messages if "\n" in text]
        if len(messages) >= MAILBOX_SIZE:
            signals.append(("all",))  # there may have been more than it holds
        try:
            with self._lock:
                if "claim" in messages:
                    signals += [("claim", *offer) for offer in self._engine.offers()]
                if "event" in messages or ("all",) in signals:
                    signals += self._engine.news()
        except Busy:
            signals.append(("all",))
        return signals

    def _watch(self, scope: str, pids: tuple[int, ...]) -> None:
        """Be told when one of these processes ends."""
        known = self._watched.get(scope, {})
        if set(known) == set(pids):
            return
        for pid in set(known) - set(pids):
            self._unwatch_pid(known.pop(pid))
        for pid in set(pids) - set(known):
            try:
                known[pid] = os.pidfd_open(pid)
            except (AttributeError, OSError):
                continue  # gone, which the next look will see; or a system without them
            self._watch_pid(scope, known[pid])
        self._watched[scope] = known

    def _watch_pid(self, scope: str, pidfd: int) -> None:
        """Called with a descriptor that becomes readable when the process ends."""

    def _unwatch_pid(self, pidfd: int) -> None:
        os.close(pidfd)

    def unwatch(self, scope: str) -> None:
        with self._lock:
            for pidfd in self._watched.pop(scope, {}).values():
                self._unwatch_pid(pidfd)

    # ------------------------------------------------------------------ forking and ending

    def hold_still(self) -> None:
        """Before a fork. SQLite can't be carried over into a child, not even to be left alone there."""
        self._lock.acquire()
        self._engine.file.close()

    def go_on(self) -> None:
        self._lock.release()

    def _shut(self) -> None:
        for scope in list(self._watched):
            self.unwatch(scope)
        if self._mailbox is not None:
            self._mailbox.close()
            self._mailbox = None
        self._engine.file.close()

    def forget(self) -> None:
        """In a forked child: the parent's event loop must not notice."""
        for pidfds in self._watched.values():
            for pidfd in pidfds.values():
                os.close(pidfd)
        self._watched = {}
        if self._mailbox is not None:
            self._mailbox.forget()
