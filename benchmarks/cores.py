"""Where the server runs, seen from the client.

Left alone, the scheduler puts both on one core in one run and on two in the next, and a round trip takes
twice as long on two. So each figure says which it is for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _placed(server_pid: int, server_core: int, own_core: int) -> Iterator[None]:
    mine, theirs = os.sched_getaffinity(0), os.sched_getaffinity(server_pid)
    os.sched_setaffinity(server_pid, {server_core})
    os.sched_setaffinity(0, {own_core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)
        os.sched_setaffinity(server_pid, theirs)


@contextmanager
def apart(server_pid: int) -> Iterator[None]:
    """As if the server were elsewhere. Does nothing where it can't."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        yield
        return
    with _placed(server_pid, cores[0], cores[-1]):
        yield


@contextmanager
def together(server_pid: int) -> Iterator[None]:
    """On one core, where a round trip is cheapest and a client's own work weighs most."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not cores:
        yield
        return
    with _placed(server_pid, cores[-1], cores[-1]):
        yield
