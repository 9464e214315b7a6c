"""What this process can say of itself and of its neighbours on the same machine."""

from __future__ import annotations

import os
import time
from functools import cache

# Counts while the machine sleeps, which CLOCK_MONOTONIC does not: a lease ages in a closed laptop too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
FAR = 10**7  # seconds; no timer is set for what is further away


def now() -> float:
    """Seconds since the machine booted; never steps."""
    return time.clock_gettime(_CLOCK)


@cache
def host() -> str:
    return os.uname().nodename


@cache
def boot_id() -> str:
    """Differs after every reboot."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        pass
    import subprocess  # noqa: PLC0415 - slow to import, and of use on macOS only

    try:
        found = subprocess.run(
            ["sysctl", "-n", "kern.bootsessionuuid"],
            capture_output=True,
            text=True,
            check=True,
        )
        return found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"  # what an earlier boot left ends with its ttl then


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


def _stat(pid: int) -> list[bytes] | None:
    """What the kernel tells of a process, from its state on; None when it tells nothing."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.read(1024)
    except OSError:
        return None
    return stat[stat.rindex(b")") + 2 :].split()  # the name before it may contain anything


def started(pid: int) -> int | None:
    """When the process started, in a unit of the kernel's; None when that can't be told."""
    stat = _stat(pid)
    return int(stat[19]) if stat else None


def alive(pid: int, start: int | None) -> bool:
    """Whether that very process still runs. A pid that was used again is another process."""
    stat = _stat(pid)
    if stat is not None:
        # Zombies count as gone: their work is over, though nobody has collected them yet.
        return stat[0] not in (b"Z", b"X") and start in (None, int(stat[19]))
    try:  # it is gone, or /proc hides it from us, or there is none
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
