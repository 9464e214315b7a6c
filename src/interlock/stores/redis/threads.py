"""The Redis store for threads: a connection per thread that is busy, and one that listens for all."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import hiredis

from ...errors import StoreUnavailable
from ...pump import Pump
from ..base import Operation, Queued, Scopes, Signal, new_client_id, settled
from .commands import Commands, pack
from .connect import UNREACHABLE, Connector, ErrorReply, Wire, is_error, refusal

if TYPE_CHECKING:
    from .. import _RedisConfig

ATTEMPTS = 3


class _Slot:
    """A reply that somebody waits for on the listening connection."""

    __slots__ = ("done", "reply")

    def __init__(self) -> None:
        self.done = False
        self.reply: Any = None


class RedisStore:
    def __init__(self, config: _RedisConfig) -> None:
        self._connector = Connector(config)
        self._commands = Commands(config.layout, round(config.window * 1000), round(config.grace * 1000))
        self._commands.client = new_client_id()
        self._idle: deque[Wire] = deque()
        self._listener: Wire | None = None
        self._listener_lock = threading.RLock()
        self._tracks = False
        self._slots: deque[_Slot] = deque()

    @property
    def listening(self) -> bool:
        return self._listener is not None

    # ------------------------------------------------------------------ operations

    def call(self, operation: Operation) -> Any:
        if isinstance(operation, Scopes):
            return self._scopes()
        command = self._commands.encode(operation)
        sent = False
        for attempt in range(ATTEMPTS):
            try:
                reply = self._exchange([command])[0]
            except StoreUnavailable as error:
                error.maybe_done = sent
                raise
            except UNREACHABLE as error:
                sent = True
                self._idle.clear()  # they all lead to where this one led
                if attempt == ATTEMPTS - 1 or isinstance(error, TimeoutError):
                    raise self._lost(error) from error
                continue
            if is_error(reply, "READONLY") and attempt < ATTEMPTS - 1:
                self._idle.clear()  # demoted: ask for the new master
                continue
            return settled(operation, self._read(operation, reply), sent)
        raise AssertionError

    def call_many(self, operations: Sequence[Operation]) -> list[Any]:
        """All in one go; an operation that failed is answered with its exception."""
        answers: list[Any] = []
        try:
            replies = self._exchange([self._commands.encode(op) for op in operations])
        except UNREACHABLE:
            replies = None
        for index, operation in enumerate(operations):
            try:
                if replies is None:
                    answers.append(self.call(operation))
                else:
                    answers.append(self._read(operation, replies[index]))
            except StoreUnavailable as error:
                answers.append(error)
        return answers

    def _read(self, operation: Operation, reply: Any) -> Any:
        if isinstance(reply, ErrorReply):
            raise refusal(reply, self._connector.shown) from reply
        return self._commands.decode(operation, reply)

    def _lost(self, error: BaseException) -> StoreUnavailable:
        return StoreUnavailable(
            f"Lost the Redis at {self._connector.shown}: {str(error).rstrip('.')}.", maybe_done=True
        )

    def _exchange(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send the commands, read their replies; a script that the server lacks is sent along."""
        try:
            wire = self._idle.pop()
        except IndexError:
            wire = self._connector.connect()
        try:
            wire.send(b"".join(map(pack, commands)))
            replies = [wire.receive() for _ in commands]
            for index, reply in enumerate(replies):
                if is_error(reply, "NOSCRIPT"):
                    wire.send(pack(self._commands.with_text(commands[index])))
                    replies[index] = wire.receive()
        except UNREACHABLE:
            wire.close()
            raise
        except BaseException:
            # Ctrl-C: what was sent must have been carried out before anything is sent to undo it.
            with contextlib.suppress(Exception):
                wire.receive_all(timeout=1.0)
            wire.close()
            raise
        self._idle.append(wire)
        return replies

    def _scopes(self) -> list[str]:
        layout = self._commands.layout
        found: set[str] = set()
        for pattern in layout.scan_patterns():
            cursor = b"0"
            while True:
                command = ("SCAN", cursor, "MATCH", pattern, "COUNT", "1000")
                try:
                    reply = self._exchange([command])[0]
                except StoreUnavailable:
                    raise
                except UNREACHABLE as error:
                    raise self._lost(error) from error
                if isinstance(reply, ErrorReply):
                    raise refusal(reply, self._connector.shown) from reply
                cursor, keys = reply
                found.update(filter(None, (layout.scope_of(key.decode(errors="replace")) for key in keys)))
                if cursor == b"0":
                    break
        return list(found)

    # ------------------------------------------------------------------ listening

    def listen(self) -> None:
        """Open the connection over which others wake us, unless it stands."""
        if self._listener is not None:
            return
        with self._listener_lock:
            if self._listener is not None:
                return
            wire = self._connector.connect()
            try:
                tracking, subscribe = self._commands.greetings()
                wire.send(tracking + subscribe)
                self._tracks = not isinstance(wire.receive(), ErrorReply)
                subscribed = wire.receive()
            except UNREACHABLE as error:
                wire.close()
                raise self._lost(error) from error
            if isinstance(subscribed, ErrorReply):
                wire.close()
                raise refusal(subscribed, self._connector.shown)
            self._slots.clear()
            self._listener = wire

    def call_tracked(self, operation: Operation, pump: Pump) -> Any:
        """As `call`, and be told when somebody touches what this has looked at."""
        slot = _Slot()
        if self._tracks:
            command = pack(self._commands.encode(operation))
            with self._listener_lock:
                wire = self._listener
                if wire is not None:
                    self._slots.append(slot)  # before it is sent: the reply may be read at once
                    try:
                        wire.send(command)
                    except UNREACHABLE:
                        self._hang_up(wire)
            if wire is not None:
                deadline = pump.deadline(self._connector.timeout)
                pump.wait(slot, lambda: slot.done or self._listener is not wire, deadline)
            if slot.done and isinstance(slot.reply, list):
                return self._commands.decode(operation, slot.reply)
        reply = self.call(operation)
        if isinstance(reply, Queued) and not self._tracks:
            reply = reply._replace(look_in=min(reply.look_in, 1000))  # nobody tells: look more often
        return reply

    def read(self, timeout: float, bell: int) -> tuple[list[object], list[Signal]]:
        """Wait for messages: finished slots, and signals."""
        wire = self._listener
        if wire is None:
            return [], [("all",)]
        ready: list[object] = []
        signals: list[Signal] = []
        try:
            messages = wire.receive_all(timeout, bell)
        except UNREACHABLE:
            self._hang_up(wire)
            return list(self._slots), [("all",)]
        except BaseException:
            self._hang_up(wire)  # Ctrl-C may have cut a message in two
            raise
        for message in messages:
            if isinstance(message, hiredis.PushNotification):
                signals += self._commands.read_push(message)
            else:
                slot = self._slots.popleft()
                slot.reply, slot.done = message, True
                ready.append(slot)
        return ready, signals

    def unwatch(self, scope: str) -> None:
        """Nothing to do: tracking ends with the next touch."""

    def _hang_up(self, wire: Wire) -> None:
        with self._listener_lock:
            if self._listener is wire:
                self._listener = None
        wire.close()

    # ------------------------------------------------------------------ ending

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        if self._listener is not None:
            self._hang_up(self._listener)

    def forget(self) -> None:
        """Nothing to do: a client's forked child opens a store of its own."""
