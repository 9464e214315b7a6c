"""Interlock's protocol over bare sockets: the least that a hand-over by these scripts can take in Python."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from contenders import Locks
from wire import Speaker, Wire, pack


def bare(url: str) -> Locks:
    port = urlsplit(url).port
    assert port is not None
    wire, ear, speaker = Wire(port), Wire(port), Speaker(uuid.uuid4().hex)
    wire.load_scripts()
    ear.command("SUBSCRIBE", speaker.wake_channel)

    @contextmanager
    def holding(name: str) -> Iterator[None]:
        lock_id = str(uuid.uuid4())
        acquire = pack(speaker.acquire(name, lock_id, queue=True))
        release = pack(speaker.release(name, lock_id))
        reply = wire.call(acquire)
        while reply[0] != 1:
            if ear.reply()[2].startswith(b"claim\n"):
                reply = wire.call(acquire)
        yield
        wire.call(release)

    return holding
