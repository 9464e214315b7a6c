"""A line on the terminal while a command waits for its turn."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

from ..errors import InterlockError
from ..model import ScopeInfo
from ..threads import Interlock
from .output import age, printable

EVERY = 1.0  # seconds
QUIET = 0.3  # for so long it may well be our turn at once


def line(info: ScopeInfo, lock_id: str) -> str:
    holder = info.holders[0] if info.holders else None
    who = printable(holder.name) if holder else "nobody any more"
    since = f" for {age(holder.locked_at)}" if holder and holder.locked_at else ""
    places = [waiter.lock_id for waiter in info.waiters]
    place = f"; you are number {places.index(lock_id) + 1} in line" if lock_id in places else ""
    return f"waiting for {printable(info.scope)}: held by {who}{since}{place}"


@contextlib.contextmanager
def shown(il: Interlock, scope: str, lock_id: str) -> Iterator[None]:
    over = threading.Event()

    def show() -> None:
        drawn, pause = False, QUIET
        while not over.wait(pause):
            pause = EVERY
            try:
                text = line(il.show(scope), lock_id)
            except InterlockError as error:
                text = str(error)
            width = os.get_terminal_size(2).columns - 1
            print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)
            drawn = True
        if drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
