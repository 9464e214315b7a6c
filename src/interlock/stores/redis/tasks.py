"""The Redis store for tasks: two connections, whatever the number of tasks.

Over the first go the commands, all of one tick of the event loop in one packet. Over the second the store
talks to us, and the looks travel that ask it to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import hiredis

from ... import machine
from ...errors import StoreUnavailable
from ..base import LimitsInUse, Operation, Scopes, Signal
from .commands import pack
from .connect import UNREACHABLE, ErrorReply, is_error, new_reader
from .store import ATTEMPTS, RedisStoreBase

if TYPE_CHECKING:
    from .. import _RedisConfig


class _Line(asyncio.Protocol):
    """One connection that any number of tasks use at once."""

    def __init__(
        self, writer: asyncio.StreamWriter, timeout: float, on_push: Callable[[list[Any]], None]
    ) -> None:
        self._writer = writer  # kept: it closes its transport when it is collected
        self._transport: Any = writer.transport
        self._reader = new_reader()
        self._timeout = timeout
        self._on_push = on_push
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []
        self._pending: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._heard = 0.0  # when something came last
        self._watchdog: asyncio.TimerHandle | None = None
        self.on_lost: Callable[[], None] = lambda: None
        self.broken: BaseException | None = None
        self._transport.set_protocol(self)

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        """The reply; an error reply is a result, a lost connection an exception."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        if self.broken is not None:
            reply.set_exception(self.broken)
            return reply
        self._pending.append((reply, machine.now()))
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(self._timeout, self._watch)
        return reply

    def _flush(self) -> None:
        if self.broken is None:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        self._heard = machine.now()
        try:
            self._reader.feed(data)
            while (message := self._reader.gets()) is not False:
                if isinstance(message, hiredis.PushNotification) and message[0] != b"subscribe":
                    self._on_push(message)
                    continue
                reply, _ = self._pending.popleft()
                if not reply.done():
                    reply.set_result(message)
        except UNREACHABLE as error:
            self.fail(error)

    def connection_lost(self, error: BaseException | None) -> None:
        self.fail(error or ConnectionError("the server closed the connection"))

    def _watch(self) -> None:
        self._watchdog = None
        if self._pending:
            # Thousands may wait for their replies: the server is silent only if none comes at all.
            left = max(self._pending[0][1], self._heard) + self._timeout - machine.now()
            if left <= 0:
                self.fail(TimeoutError(f"no reply for {self._timeout:g} s"))
            else:
                self._watchdog = self._loop.call_later(left, self._watch)

    def fail(self, error: BaseException) -> None:
        if self.broken is not None:
            return
        self.broken = error
        for reply, _ in self._pending:
            if not reply.done():
                reply.set_exception(error)
                reply.exception()  # whoever was cancelled meanwhile never asks
        self._pending.clear()
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._transport.abort()
        self.on_lost()

    def close(self) -> None:
        self.on_lost = lambda: None
        self.fail(ConnectionError("closed"))


class AsyncRedisStore(RedisStoreBase):
    def __init__(self, config: _RedisConfig, on_signals: Callable[[list[Signal]], None]) -> None:
        super().__init__(config)
        self._on_signals = on_signals
        self._line: _Line | None = None
        self._listener: _Line | None = None
        self._attempts: dict[str, asyncio.Future[None]] = {}

    @property
    def listening(self) -> bool:
        return self._listener is not None and self._listener.broken is None

    # ------------------------------------------------------------------ operations

    async def call(self, operation: Operation, tracked: bool = False) -> Any:
        if isinstance(operation, (Scopes, LimitsInUse)):
            return await self._listed(operation)
        packed, command = self._commands.packed(operation)
        if tracked and self._tracks and self._listener is not None:
            try:
                listener = self._listener
                reply = await listener.send(packed)
                if is_error(reply, "NOSCRIPT"):
                    reply = await listener.send(pack(self._commands.with_text(command)))
                if isinstance(reply, list):
                    return self._commands.decode(operation, reply)
            except UNREACHABLE:
                pass  # the other connection may do better
        sent = False
        for attempt in range(ATTEMPTS):
            try:
                line = await self._open_line()
            except StoreUnavailable as error:
                error.maybe_done = sent
                raise
            try:
                reply = await line.send(packed)
                if is_error(reply, "NOSCRIPT"):
                    reply = await line.send(pack(self._commands.with_text(command)))
            except UNREACHABLE as error:
                sent = True
                if attempt == ATTEMPTS - 1 or isinstance(error, TimeoutError):
                    raise self._lost(error) from error
                continue
            if is_error(reply, "READONLY") and attempt < ATTEMPTS - 1:
                line.fail(ConnectionError(str(reply)))  # demoted: ask for the new master
                continue
            answer = self._read(operation, reply, resent=sent)
            return self._read_untracked(answer) if tracked else answer
        raise AssertionError

    async def _open_line(self) -> _Line:
        if self._line is None or self._line.broken is not None:
            await self._once(self._connect_line)
            assert self._line is not None
        return self._line

    async def _connect_line(self) -> None:
        writer = await self._connector.connect_async()
        self._line = _Line(writer, self._connector.timeout, lambda push: None)

    async def _once(self, attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Thousands of tasks may ask at once: one attempt answers for all who ask while it lasts."""
        task = self._attempts.get(attempt.__name__)
        if task is None:
            task = self._attempts[attempt.__name__] = asyncio.ensure_future(attempt())

            def done(task: asyncio.Future[None]) -> None:
                del self._attempts[attempt.__name__]
                task.cancelled() or task.exception()  # whoever asked may have been cancelled meanwhile

            task.add_done_callback(done)
        await asyncio.shield(task)

    async def _listed(self, operation: Scopes | LimitsInUse) -> list[Any]:
        patterns, named = self._commands.listing(operation)
        found: set[Any] = set()
        for pattern in patterns:
            cursor = b"0"
            while True:
                line = await self._open_line()
                try:
                    reply = await line.send(pack(("SCAN", cursor, "MATCH", pattern, "COUNT", "1000")))
                except UNREACHABLE as error:
                    raise self._lost(error) from error
                self._refuse_error(reply)
                cursor, keys = reply
                found.update(filter(None, (named(key.decode(errors="replace")) for key in keys)))
                if cursor == b"0":
                    break
        return list(found)

    # ------------------------------------------------------------------ listening

    async def listen(self, events: bool = False) -> None:
        """Open the connection over which others wake us, unless it stands."""
        self._follows |= events
        while not self.listening or (events and not self._hears_events):
            if self.listening and self._listener is not None:
                self._listener.fail(ConnectionError("events are to come over it too"))
            await self._once(self._connect_listener)

    async def _connect_listener(self) -> None:
        writer = await self._connector.connect_async()
        line = _Line(writer, self._connector.timeout, self._pushed)
        follows = self._follows
        try:
            tracking, *subscribed = await asyncio.gather(
                *(line.send(pack(greeting)) for greeting in self._commands.greetings(follows))
            )
            for reply in subscribed:
                self._refuse_error(reply)
        except StoreUnavailable:
            line.close()
            raise
        except UNREACHABLE as error:
            line.close()
            raise self._lost(error) from error
        self._tracks = not isinstance(tracking, ErrorReply)
        self._listener, self._hears_events = line, follows
        line.on_lost = lambda: self._on_signals(self._cut_off())

    def _pushed(self, push: list[Any]) -> None:
        signals = self._commands.read_push(push)
        if signals:
            self._on_signals(signals)

    # ------------------------------------------------------------------ ending

    async def close(self) -> None:
        connecting = list(self._attempts.values())
        for attempt in connecting:
            attempt.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        for line in (self._line, self._listener):
            if line is not None:
                line.close()
        self._line = self._listener = None
