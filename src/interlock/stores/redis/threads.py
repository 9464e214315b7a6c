"""The Redis store for threads: a connection per thread that is busy, and one that listens for all."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import hiredis

from ... import machine
from ...errors import StoreUnavailable
from ...pump import Pump
from ..base import Finding, LimitsInUse, Operation, Scopes, Signal
from .commands import pack
from .connect import UNREACHABLE, ErrorReply, Wire, is_error
from .store import ATTEMPTS, RedisStoreBase

if TYPE_CHECKING:
    from .. import _RedisConfig


class _Slot:
    """A reply that somebody waits for on the listening connection."""

    __slots__ = ("done", "reply")

    def __init__(self) -> None:
        self.done = False
        self.reply: Any = None


class RedisStore(RedisStoreBase):
    def __init__(self, config: _RedisConfig) -> None:
        super().__init__(config)
        self._idle: deque[Wire] = deque()
        self._listener: Wire | None = None
        self._listener_lock = threading.RLock()
        self._slots: deque[_Slot] = deque()

    @property
    def listening(self) -> bool:
        return self._listener is not None

    # ------------------------------------------------------------------ operations

    def call(self, operation: Operation) -> Any:
        if isinstance(operation, (Scopes, LimitsInUse)):
            return self._listed(operation)
        packed, command = self._commands.packed(operation)
        sent = False
        for attempt in range(ATTEMPTS):
            try:
                reply = self._ask(packed, command)
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
            return self._read(operation, reply, resent=sent)
        raise AssertionError

    def call_many(self, operations: Sequence[Operation], patience: float) -> list[Any]:
        """All in one go, for so many seconds; an operation that failed is answered with its exception."""
        commands = [self._commands.encode(op) for op in operations]
        deadline = machine.now() + patience
        replies: list[Any] = []
        for attempt in range(ATTEMPTS):
            try:
                timeout = min(self._connector.timeout, max(0.01, deadline - machine.now()))
                replies = self._exchange(b"".join(map(pack, commands)), commands, timeout)
            except StoreUnavailable:
                raise
            except UNREACHABLE as error:
                self._idle.clear()
                if attempt == ATTEMPTS - 1 or isinstance(error, TimeoutError):
                    raise self._lost(error) from error
            else:
                if not any(is_error(reply, "READONLY") for reply in replies):
                    break
                self._idle.clear()  # demoted: ask for the new master
        answers: list[Any] = []
        for operation, reply in zip(operations, replies, strict=True):
            try:
                answers.append(self._read(operation, reply))
            except StoreUnavailable as error:
                answers.append(error)
        return answers

    def _ask(self, packed: bytes, command: tuple[Any, ...]) -> Any:
        return self._exchange(packed, (command,), self._connector.timeout)[0]

    def _exchange(self, packed: bytes, commands: Sequence[tuple[Any, ...]], timeout: float) -> list[Any]:
        """Send the commands, read their replies; a script that the server lacks is sent along."""
        try:
            wire = self._idle.pop()
        except IndexError:
            wire = self._connector.connect(timeout)
        wire.timeout = timeout
        under_way = True
        try:
            wire.send(packed)
            replies = [wire.receive() for _ in commands]
            under_way = False
            for index, reply in enumerate(replies):
                if type(reply) is ErrorReply and is_error(reply, "NOSCRIPT"):
                    under_way = True
                    wire.send(pack(self._commands.with_text(commands[index])))
                    replies[index] = wire.receive()
                    under_way = False
        except UNREACHABLE:
            wire.close()
            raise
        except BaseException:
            # Ctrl-C: what was sent must have been carried out before anything is sent to undo it.
            with contextlib.suppress(Exception):
                wire.receive_all(timeout=1.0 if under_way else 0)
            wire.close()
            raise
        self._idle.append(wire)
        return replies

    def _listed(self, operation: Scopes | LimitsInUse) -> list[Any]:
        patterns, named = self._commands.listing(operation)
        found: set[Any] = set()
        for pattern in patterns:
            cursor = b"0"
            while True:
                command = ("SCAN", cursor, "MATCH", pattern, "COUNT", "1000")
                try:
                    reply = self._ask(pack(command), command)
                except StoreUnavailable:
                    raise
                except UNREACHABLE as error:
                    raise self._lost(error) from error
                self._refuse_error(reply)
                cursor, keys = reply
                found.update(filter(None, (named(key.decode(errors="replace")) for key in keys)))
                if cursor == b"0":
                    break
        return list(found)

    def findings(self) -> Iterator[Finding]:
        """What a user should know of this server."""
        from .findings import examine  # noqa: PLC0415 - for the doctor only

        def ask(*command: str) -> Any:
            reply = self._ask(pack(command), command)
            return None if isinstance(reply, ErrorReply) else reply

        return examine(ask)

    # ------------------------------------------------------------------ listening

    def listen(self, events: bool = False) -> None:
        """Open the connection over which others wake us, unless it stands."""
        if self._listener is not None and (self._hears_events or not events):
            return
        with self._listener_lock:
            if self._listener is not None:
                if self._hears_events or not events:
                    return
                self._hang_up(self._listener)  # whoever waits looks, and listens over the next
            self._follows |= events
            wire = self._connector.connect()
            greetings = self._commands.greetings(self._follows)
            try:
                wire.send(b"".join(map(pack, greetings)))
                tracking, *subscribed = [wire.receive() for _ in greetings]
            except UNREACHABLE as error:
                wire.close()
                raise self._lost(error) from error
            try:
                for reply in subscribed:
                    self._refuse_error(reply)
            except StoreUnavailable:
                wire.close()
                raise
            self._tracks = not isinstance(tracking, ErrorReply)
            self._slots.clear()
            self._listener, self._hears_events = wire, self._follows

    def call_tracked(self, operation: Operation, pump: Pump) -> Any:
        """As `call`, and be told when somebody touches what this has looked at."""
        if self._tracks:
            command = self._commands.encode(operation)
            reply = self._ask_listener(command, pump)
            if is_error(reply, "NOSCRIPT"):
                reply = self._ask_listener(self._commands.with_text(command), pump)
            if isinstance(reply, list):
                return self._commands.decode(operation, reply)
        return self._read_untracked(self.call(operation))

    def _ask_listener(self, command: tuple[Any, ...], pump: Pump) -> Any:
        """The reply; None if the connection fails."""
        slot = _Slot()
        with self._listener_lock:
            wire = self._listener
            if wire is None:
                return None
            self._slots.append(slot)  # before it is sent: the reply may be read at once
            try:
                wire.send(pack(command))
            except UNREACHABLE:
                self._hang_up(wire)
        deadline = pump.deadline(self._connector.timeout)
        if not pump.wait(slot, lambda: slot.done or self._listener is not wire, deadline):
            self._hang_up(wire)  # it is silent: nobody would be woken over it either
        return slot.reply

    def read(self, timeout: float, bell: int) -> tuple[list[object], list[Signal]]:
        """Wait for messages: finished slots, and signals."""
        wire, cut_off = self._listener, self._cut_off()
        if wire is None:
            return [], cut_off
        ready: list[object] = []
        signals: list[Signal] = []
        try:
            messages = wire.receive_all(timeout, bell)
        except UNREACHABLE:
            self._hang_up(wire)
            return list(self._slots), cut_off
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
