"""The local store for threads."""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import StoreUnavailable
from ...pump import Pump
from ..base import Busy, Finding, Operation, Signal
from .local import LocalStore


class SqliteStore(LocalStore):
    def call(self, operation: Operation) -> Any:
        return self._run(operation)

    def call_tracked(self, operation: Operation, pump: Pump) -> Any:
        return self.call(operation)

    def call_many(self, operations: Sequence[Operation], patience: float) -> list[Any]:
        """An operation that failed is answered with its exception."""
        answers: list[Any] = []
        for operation in operations:
            try:
                answers.append(self.call(operation))
            except (Busy, StoreUnavailable) as error:
                answers.append(error)
        return answers

    def findings(self) -> Iterator[Finding]:
        """What a user should know of this file."""
        return self._engine.file.findings()

    def listen(self, events: bool = False) -> None:
        with self._lock:
            self._open_mailbox()

    def read(self, timeout: float, bell: int) -> tuple[list[object], list[Signal]]:
        """Wait for messages and for the end of watched processes."""
        poll = select.poll()
        with self._lock:
            if self._mailbox is None:
                return [], [("all",)]
            mailbox = self._mailbox.fileno()
            poll.register(mailbox, select.POLLIN)
            poll.register(bell, select.POLLIN)
            scopes = {}
            for scope, pids in self._watched.items():
                for pidfd in pids.values():
                    scopes[pidfd] = scope
                    poll.register(pidfd, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(timeout * 1000 + 1)]
        with self._lock:
            signals: list[Signal] = self._read_mailbox() if mailbox in ready and self._mailbox else []
            for descriptor in ready:
                if descriptor in scopes:
                    self.unwatch(scopes[descriptor])
                    signals.append(("look", scopes[descriptor]))
        return [], signals

    def _watch_pid(self, scope: str, pidfd: int) -> None:
        if self._mailbox is not None:
            from .mailbox import ring  # noqa: PLC0415

            ring(self._engine.client, "")  # whoever polls now does not know of it yet

    def close(self) -> None:
        with self._lock:
            self._shut()
