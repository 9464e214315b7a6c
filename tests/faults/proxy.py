"""A TCP proxy in front of a Redis that does to it what networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

Command = list[bytes]


def take_commands(buffer: bytearray) -> list[tuple[bytes, Command]]:
    """Remove the complete commands from the buffer; answers each as it was sent, and its words."""
    found = []
    while True:
        position, words = 0, []
        try:
            end = buffer.index(b"\r\n")
            count, position = int(buffer[1:end]), end + 2
            for _ in range(count):
                end = buffer.index(b"\r\n", position)
                size, position = int(buffer[position + 1 : end]), end + 2
                if len(buffer) < position + size + 2:
                    return found
                words.append(bytes(buffer[position : position + size]))
                position += size + 2
        except ValueError:
            return found
        found.append((bytes(buffer[:position]), words))
        del buffer[:position]


def is_script(command: Command) -> bool:
    """What every operation of Interlock's is, and nothing that a connection says of itself."""
    return command[0] in (b"EVALSHA", b"EVAL")


class Link:
    """One client's connection, and ours to the server on its behalf."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.listens = False  # has subscribed
        self.swallows = False  # ends with the next reply, which nobody gets to see

    def close(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Forwards to `port` of 127.0.0.1, and misbehaves on request.

    delay: seconds by which each packet is late, in both directions.
    listening_delay: the same, only for what goes to the server on connections that have subscribed.
    refusing: new connections are closed at once.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self.delay = 0.0
        self.listening_delay = 0.0
        self.refusing = False
        self._flows = threading.Event()
        self._flows.set()
        self._lock = threading.Lock()
        self._links: set[Link] = set()
        self._dropping: Callable[[Command], bool] = lambda command: False
        self.dropped = 0
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self) -> None:
        """Close every connection."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.close()

    def partition(self) -> None:
        """Nothing comes through any more, and nobody is told; what was sent comes late."""
        self._flows.clear()

    def heal(self) -> None:
        self._flows.set()
        self.refusing = False

    def drop_reply(self, nth: int = 1, *, times: int = 1) -> None:
        """From the n-th operation on, let so many be carried out, and hang up instead of answering."""
        seen = 0

        def counted(command: Command) -> bool:
            nonlocal seen
            seen += is_script(command)
            return is_script(command) and nth <= seen < nth + times

        self.dropped = 0
        self._dropping = counted

    def close(self) -> None:
        self.heal()
        self._door.close()
        self.cut()

    # ------------------------------------------------------------------ at work

    @staticmethod
    def _start(target: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            try:
                link = Link(client, socket.create_connection(self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._links.add(link)
            self._start(self._requests, link)
            self._start(self._replies, link)

    def _pass_on(self, link: Link, target: socket.socket, data: bytes) -> None:
        late = self.delay
        if link.listens and target is link.server:
            late += self.listening_delay
        if late:
            time.sleep(late)
        self._flows.wait()
        target.sendall(data)

    def _requests(self, link: Link) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while data := link.client.recv(65536):
                buffer += data
                for raw, command in take_commands(buffer):
                    link.listens |= command[0] == b"SUBSCRIBE"
                    if self._dropping(command):
                        link.swallows = True
                    self._pass_on(link, link.server, raw)
        link.close()

    def _replies(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(65536):
                if link.swallows:
                    self.dropped += 1
                    break
                self._pass_on(link, link.client, data)
        link.close()
