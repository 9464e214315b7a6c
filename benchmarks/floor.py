"""Interlock's protocol over bare sockets: the least that a hand-over by these scripts can take in Python."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from .contenders import Locks
from .wire import Speaker, Wire, pack


def bare(url: str) -> Locks:
    """Whoever is woken claims its lease, and goes on when the server has confirmed it."""
    return _locks(url, confirmed=True)


def unconfirmed(url: str) -> Locks:
    """Whoever is woken goes on at once: one message from hand to hand, which no design can undercut."""
    return _locks(url, confirmed=False)


def _locks(url: str, confirmed: bool) -> Locks:
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
        granted = wire.call(acquire)[0] == 1
        while not granted:
            if ear.reply()[2].startswith(b"claim\n"):
                wire.send(acquire)
                granted = confirmed and wire.reply()[0] == 1
                if not confirmed:
                    break
        yield
        if not granted:
            wire.reply()
        wire.call(release)

    return holding
