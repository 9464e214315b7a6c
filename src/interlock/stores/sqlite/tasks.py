"""The local store for tasks. A transaction takes less than a thread hop would, so there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..base import Operation, Signal
from .local import LocalStore

if TYPE_CHECKING:
    from .. import _SqliteConfig


class AsyncSqliteStore(LocalStore):
    def __init__(self, config: _SqliteConfig, on_signals: Callable[[list[Signal]], None]) -> None:
        super().__init__(config)
        self._on_signals = on_signals
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(self, operation: Operation, tracked: bool = False) -> Any:
        return self._run(operation)

    async def listen(self, events: bool = False) -> None:
        if self._mailbox is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._open_mailbox().fileno(), self._rung)

    def _rung(self) -> None:
        self._on_signals(self._read_mailbox())

    def _watch_pid(self, scope: str, pidfd: int) -> None:
        asyncio.get_running_loop().add_reader(pidfd, self._ended, scope)

    def _unwatch_pid(self, pidfd: int) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(pidfd)
        super()._unwatch_pid(pidfd)

    def _ended(self, scope: str) -> None:
        self.unwatch(scope)
        self._on_signals([("look", scope)])

    def _shut(self) -> None:
        if self._mailbox is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._mailbox.fileno())
        super()._shut()

    async def close(self) -> None:
        self._shut()
