"""The Redis store for threads: a connection per thread that is busy, and one that listens for all."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import hiredis
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as NoReply

from ...errors import StoreUnavailable
from ...pump import Pump
from ..base import Operation, Queued, Scopes, Signal, new_client_id, settled
from .commands import Commands, pack
from .connect import UNREACHABLE, Connector, refusal

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
        self._idle: deque[Any] = deque()
        self._listener: Any = None
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
            except UNREACHABLE as error:
                sent = True
                self._idle.clear()  # they all lead to where this one led
                if attempt == ATTEMPTS - 1 or isinstance(error, NoReply):
                    raise self._lost(error) from error
                continue
            if isinstance(reply, ReadOnlyError) and attempt < ATTEMPTS - 1:
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
        if isinstance(reply, ResponseError):
            raise refusal(reply, self._connector.shown) from reply
        return self._commands.decode(operation, reply)

    def _lost(self, error: BaseException) -> StoreUnavailable:
        return StoreUnavailable(
            f"Lost the Redis at {self._connector.shown}: {str(error).rstrip('.')}.", maybe_done=True
        )

    def _exchange(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send the commands, read their replies; a script that the server lacks is sent along."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connector.connect()
        try:
            connection.send_packed_command([pack(c) for c in commands], check_health=False)
            replies = [self._receive(connection) for _ in commands]
            for index, reply in enumerate(replies):
                if isinstance(reply, NoScriptError):
                    text = pack(self._commands.with_text(commands[index]))
                    connection.send_packed_command([text], check_health=False)
                    replies[index] = self._receive(connection)
        except UNREACHABLE:
            connection.disconnect()
            raise
        except BaseException:
            # Ctrl-C: what was sent must have been carried out before anything is sent to undo it.
            with contextlib.suppress(Exception):
                connection.read_response(disable_decoding=True, timeout=1.0)
            connection.disconnect()
            raise
        self._idle.append(connection)
        return replies

    @staticmethod
    def _receive(connection: Any) -> Any:
        try:
            return connection.read_response(disable_decoding=True, disconnect_on_error=False)
        except ResponseError as error:
            return error

    def _scopes(self) -> list[str]:
        layout = self._commands.layout
        found: set[str] = set()
        for pattern in layout.scan_patterns():
            cursor = b"0"
            while True:
                command = ("SCAN", cursor, "MATCH", pattern, "COUNT", "1000")
                try:
                    reply = self._exchange([command])[0]
                except UNREACHABLE as error:
                    raise self._lost(error) from error
                if isinstance(reply, ResponseError):
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
            connection = self._connector.connect()
            try:
                tracking, subscribe = self._commands.greetings()
                connection._parser.set_invalidation_push_handler(lambda push: push)
                connection.send_packed_command([tracking, subscribe], check_health=False)
                self._tracks = not isinstance(self._receive(connection), ResponseError)
                push = connection.read_response(
                    disable_decoding=True, push_request=True, disconnect_on_error=False
                )
                assert push[0] == b"subscribe"
            except ResponseError as error:
                connection.disconnect()
                raise refusal(error, self._connector.shown) from error
            except UNREACHABLE as error:
                connection.disconnect()
                raise self._lost(error) from error
            self._slots.clear()
            self._listener = connection

    def call_tracked(self, operation: Operation, pump: Pump) -> Any:
        """As `call`, and be told when somebody touches what this has looked at."""
        slot = _Slot()
        if self._tracks:
            command = pack(self._commands.encode(operation))
            with self._listener_lock:
                connection = self._listener
                if connection is not None:
                    self._slots.append(slot)  # before it is sent: the reply may be read at once
                    try:
                        connection.send_packed_command([command], check_health=False)
                    except UNREACHABLE:
                        self._hang_up(connection)
            deadline = pump.deadline(self._connector.timeout)
            if connection is not None:
                pump.wait(slot, lambda: slot.done or self._listener is not connection, deadline)
            if slot.done and isinstance(slot.reply, list):
                return self._commands.decode(operation, slot.reply)
        reply = self.call(operation)
        if isinstance(reply, Queued) and not self._tracks:
            reply = reply._replace(look_in=min(reply.look_in, 1000))  # nobody tells: look more often
        return reply

    def read(self, timeout: float) -> tuple[list[object], list[Signal]]:
        """Wait for messages: finished slots, and signals."""
        connection = self._listener
        if connection is None:
            return [], [("all",)]
        ready: list[object] = []
        signals: list[Signal] = []
        try:
            while True:
                try:
                    message = connection.read_response(
                        disable_decoding=True, push_request=True, disconnect_on_error=False, timeout=timeout
                    )
                except ResponseError as error:
                    message = error
                if isinstance(message, hiredis.PushNotification):
                    signals += self._commands.read_push(message)
                else:
                    slot = self._slots.popleft()
                    slot.reply, slot.done = message, True
                    ready.append(slot)
                if not connection.can_read(0):
                    return ready, signals
        except NoReply:
            return ready, signals
        except UNREACHABLE:
            self._hang_up(connection)
            return [*ready, *self._slots], [*signals, ("all",)]
        except BaseException:
            self._hang_up(connection)  # Ctrl-C may have cut a message in two
            raise

    def unwatch(self, scope: str) -> None:
        """Nothing to do: tracking ends with the next touch."""

    def _hang_up(self, connection: Any) -> None:
        with self._listener_lock:
            if self._listener is connection:
                self._listener = None
        connection.disconnect()

    # ------------------------------------------------------------------ ending

    def close(self) -> None:
        while self._idle:
            self._idle.pop().disconnect()
        if self._listener is not None:
            self._hang_up(self._listener)

    def forget(self) -> None:
        """Nothing to do: a client's forked child opens a store of its own."""
