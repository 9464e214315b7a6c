"""What this process can say of itself and of its neighbours on the same machine."""

from __future__ import annotations

import os
import socket
import time
from functools import cache
from pathlib import Path

# Counts while the machine sleeps, which CLOCK_MONOTONIC does not: a lease ages in a closed laptop too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
FAR = 10**7  # seconds; no timer is set for what is further away


def now() -> float:
    """Seconds since the machine booted; never steps."""
    return time.clock_gettime(_CLOCK)


@cache
def host() -> str:
    return socket.gethostname()


@cache
def boot_id() -> str:
    """Differs after every reboot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"boot-{round((time.time() - now()) / 60)}"


@cache
def realm() -> str:
    """Names the set of processes whose pids and sockets mean the same to all of them."""
    spaces = []
    for kind in ("pid", "net"):
        try:
            spaces.append(os.readlink(f"/proc/self/ns/{kind}"))
        except OSError:
            spaces.append("")
    return " ".join([boot_id(), *spaces])


def started(pid: int) -> int | None:
    """When the process started, in a unit of the kernel's; None when it is gone or can't be told.

    Zombies count as gone: their work is over, though nobody has collected them yet.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.read(1024)
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may contain anything
    if fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def alive(pid: int, start: int | None) -> bool:
    """Whether that very process still runs. A pid that was used again is another process."""
    if os.path.exists("/proc/self/stat"):
        found = started(pid)
        return found is not None and start in (None, found)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
