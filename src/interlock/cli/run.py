"""run: hold a scope while a command runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

from ..errors import InterlockError, InvalidInput, LeaseLost
from ..lease import Lease
from ..threads import Interlock
from . import LOST, complain
from .options import Call, Parser, add_lease, is_terminal, parser, seconds
from .process import Pipe, Process


def _run() -> Parser:
    made = parser(
        "run",
        "hold a scope while a command runs",
        "  interlock run nightly -- ./backup.sh\n"
        "  interlock run nightly --fail-fast -- ./backup.sh       exit code 75 if it runs already\n"
        "  interlock run deploy --wait 10m --ttl 30 -- make deploy\n"
        "  interlock run vendor-api --permits 5 -- ./sync.sh      at most five at a time\n"
        "  interlock run import --progress-from stdout -- ./import.sh\n\n"
        "The command finds INTERLOCK_SCOPE, INTERLOCK_LOCK_ID, INTERLOCK_FENCE and INTERLOCK_URL in its"
        " environment.\n"
        "Exit code: the command's own; 75 held, or not free in time; 70 lease lost; 69 store unreachable;\n"
        "64 bad usage; 127, 126 command not found, not executable.",
        "SCOPE [options] -- COMMAND …",
    )
    made.add_argument("scope", metavar="SCOPE")
    add_lease(made)
    made.add_argument(
        "--grace", type=seconds, metavar="S", help="lease lost: SIGTERM, and S seconds later SIGKILL (10)"
    )
    made.add_argument(
        "--progress-from",
        choices=("stdout", "stderr"),
        help="read lines such as '40%% loading page 4' there, and show them as the scope's status",
    )
    made.takes_command = True
    made.hint = " (a command stands behind two dashes: -- ./job.sh)"
    return made


class _Ended(Exception):
    """A signal came while we waited for our turn."""


def _end(number: int, frame: FrameType | None) -> None:
    raise _Ended(number)


def _call_run(call: Call) -> int:
    if not call.command:
        example = f"interlock run {call.scope} -- ./job.sh"
        raise InvalidInput(f"There is no command: write it behind two dashes, as in {example}.")
    grace = call.settings["grace"]
    il = call.client()
    before = {number: signal.signal(number, _end) for number in _fatal()}
    try:
        lease = _acquire(call, il)
    except _Ended as ended:
        return 128 + int(ended.args[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    process = Process(call.command, _environment(il, lease, call))
    telling, told = threading.Lock(), threading.Event()

    def on_lost(_: Lease) -> None:
        with telling:
            if process.ended:
                return
            told.set()
            complain(f"{LeaseLost(lease.scope, lease.lock_id, lease.lost_because or '')} Ending the command.")
        process.end(grace)

    def run(pipe: Pipe | None = None) -> int:
        code = process.run(pipe)
        with telling:  # from here on nothing more is told
            known = told.is_set()
        return _give_back(lease, code, known)

    lease.on_lost = on_lost
    lease.check()  # it may have been lost before anybody asked to be told
    if call.progress_from is None:
        return run()
    from .progress import copying  # noqa: PLC0415

    with copying(lease, call.progress_from) as pipe:
        return run(pipe)


def _fatal() -> list[int]:
    numbers = (signal.SIGTERM, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def _acquire(call: Call, il: Interlock) -> Lease:
    options = call.lease()
    if options["label"] is None:
        said = " ".join(call.command)[:200]
        options["label"] = "".join(c if c.isprintable() else " " for c in said).strip() or None
    if options["wait"] == 0 or not is_terminal(sys.stderr):
        return il.acquire(call.scope, renew=True, **options)
    from .waiting import shown  # noqa: PLC0415 - only for people who wait

    options["lock_id"] = options["lock_id"] or os.urandom(16).hex()
    with shown(il, call.scope, options["lock_id"]):
        return il.acquire(call.scope, renew=True, **options)


def _environment(il: Interlock, lease: Lease, call: Call) -> dict[str, str]:
    found = {
        **os.environ,
        "INTERLOCK_SCOPE": lease.scope,
        "INTERLOCK_LOCK_ID": lease.lock_id,
        "INTERLOCK_FENCE": str(lease.fence),
    }
    if found.get("LC_CTYPE") == "C.UTF-8" and not _was_given(b"LC_CTYPE"):
        del found["LC_CTYPE"]  # Python has set it for itself
    url = call.settings["url"]
    return {**found, "INTERLOCK_URL": url} if url else found


def _was_given(name: bytes) -> bool:
    try:
        with open("/proc/self/environ", "rb") as environment:
            return any(line.startswith(name + b"=") for line in environment.read().split(b"\0"))
    except OSError:
        return True


def _give_back(lease: Lease, code: int, told: bool) -> int:
    try:
        lease.release()
    except LeaseLost as lost:
        if not told:
            complain(f"{lost} The command had ended before it was noticed.")
        return LOST
    except InterlockError as error:  # the command's work is done, and its exit code is what counts
        complain(f"{error} The lease ends with its ttl.")
    return code


COMMANDS = {"run": (_run, _call_run)}
