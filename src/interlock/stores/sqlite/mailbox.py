"""How processes of one machine ring each other: a datagram socket per client, named after it.

What arrives is a hint and never trusted: whoever is woken looks into the file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys


def _address(client: str) -> str:
    if sys.platform == "linux":
        return f"\0interlock-{client}"  # abstract: leaves no file behind
    import tempfile  # noqa: PLC0415 - slow to import, and of no use on Linux

    return os.path.join(tempfile.gettempdir(), f"interlock-{client}")


class Mailbox:
    def __init__(self, client: str) -> None:
        self._client = client
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(_address(client))

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain(self) -> list[str]:
        """All messages that have arrived."""
        messages = []
        with contextlib.suppress(BlockingIOError):
            while True:
                messages.append(self._socket.recv(8192).decode(errors="replace"))
        return messages

    def forget(self) -> None:
        """In a forked child: the mailbox goes on belonging to the parent."""
        self._socket.close()

    def close(self) -> None:
        self._socket.close()
        if sys.platform != "linux":
            with contextlib.suppress(OSError):
                os.unlink(_address(self._client))


def ring(client: str, text: str) -> bool:
    """Leave a message; false if nobody reads that mailbox any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.sendto(text.encode(), _address(client))
        except BlockingIOError:
            return True  # full: the reader has been rung already
        except OSError:
            return False
    return True
