"""The floor: Interlock's own commands over a bare socket, with nothing around them."""

from __future__ import annotations

import socket
import time
from typing import Any

import hiredis

from interlock.protocol import leases
from interlock.stores import GRACE, WINDOW
from interlock.stores.base import Operation, Release
from interlock.stores.redis.commands import Commands, script
from interlock.stores.redis.layout import Layout


class Wire:
    """One connection, blocking."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def send(self, packet: bytes) -> None:
        self._socket.sendall(packet)

    def reply(self) -> Any:
        while (message := self._reader.gets()) is False:
            chunk = self._socket.recv(65536)
            if not chunk:
                raise ConnectionError("the server hung up")
            self._reader.feed(chunk)
        if isinstance(message, Exception):
            raise message
        return message

    def call(self, packet: bytes) -> Any:
        self._socket.sendall(packet)
        return self.reply()

    def call_many(self, packets: list[bytes]) -> list[Any]:
        self._socket.sendall(b"".join(packets))
        return [self.reply() for _ in packets]

    def command(self, *words: str) -> Any:
        return self.call(hiredis.pack_command(words))

    def load_scripts(self) -> None:
        for name in ("acquire", "release"):
            self.command("SCRIPT", "LOAD", script(name)[0])

    def close(self) -> None:
        self._socket.close()


class Speaker:
    """Says what a client of Interlock would say, without being one."""

    def __init__(self, client: str = "", window: float = WINDOW) -> None:
        self._commands = Commands(Layout(), round(window * 1000), round(GRACE * 1000))
        self._commands.client = client

    @property
    def wake_channel(self) -> str:
        return self._commands.layout.wake_channels + self._commands.client

    def acquire(self, scope: str, lock_id: str, queue: bool = False) -> tuple[Any, ...]:
        wanted = leases.request(scope, renews=True, ttl=600, lock_id=lock_id)
        return self._encoded(wanted.operation(queue))

    def release(self, scope: str, lock_id: str) -> tuple[Any, ...]:
        return self._encoded(Release(scope, lock_id))

    def _encoded(self, operation: Operation) -> tuple[Any, ...]:
        return self._commands.encode(operation)


def pack(command: tuple[Any, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(command)
    return packed


def ping_ns(port: int, count: int, pause: float = 0.0) -> list[int]:
    """Bare round trips; `pause` lets the machine fall asleep in between, as it does while a scope is held."""
    wire = Wire(port)
    packet = pack(("PING",))
    took = []
    for _ in range(count):
        if pause:
            time.sleep(pause)
        start = time.perf_counter_ns()
        wire.call(packet)
        took.append(time.perf_counter_ns() - start)
    wire.close()
    return took
