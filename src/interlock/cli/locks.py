"""acquire, renew, release, break, cleanup: leases that span several commands."""

from __future__ import annotations

import sys

from ..errors import InvalidInput, LockHeld, WaitTimeout
from .options import Call, Parser, add_lease, is_terminal, parser, seconds
from .output import plain, printable


def _acquire() -> Parser:
    made = parser(
        "acquire",
        "take a lease and print its lock_id. It ends after its ttl unless you renew or release it",
        '  id=$(interlock acquire deploy --ttl 10m --wait 60) || exit\n  …\n  interlock release deploy "$id"',
    )
    made.add_argument("scope", metavar="SCOPE")
    add_lease(made)
    return made


def _call_acquire(call: Call) -> int:
    try:
        lease = call.client().acquire(call.scope, **call.lease())
    except (LockHeld, WaitTimeout) as refused:
        if call.json:
            count = refused.count if isinstance(refused, LockHeld) else None
            call.say(
                {"acquired": False, "count": count, "scope": call.scope, "holder": plain(refused.holder)},
                lambda: None,
            )
        raise
    try:
        call.say(lease, lambda: lease.lock_id)
        sys.stdout.flush()
    except OSError:  # else nobody could release it
        lease.release()
        raise
    return 0


def _renew() -> Parser:
    made = parser("renew", "let a lease end S seconds from now", '  interlock renew deploy "$id" --ttl 10m')
    made.add_argument("scope", metavar="SCOPE")
    made.add_argument("lock_id", metavar="LOCK_ID")
    made.add_argument("--ttl", type=seconds, metavar="S", help="seconds from now (30)")
    return made


def _call_renew(call: Call) -> int:
    done = call.client().renew(call.scope, call.lock_id, ttl=call.settings["ttl"])
    call.say(done, lambda: None)
    return 0


def _release() -> Parser:
    made = parser("release", "give a lease back. Twice is fine", '  interlock release deploy "$id"')
    made.add_argument("scope", metavar="SCOPE")
    made.add_argument("lock_id", metavar="LOCK_ID")
    return made


def _call_release(call: Call) -> int:
    done = call.client().release(call.scope, call.lock_id)
    call.say(done, lambda: None)
    return 0


def _break() -> Parser:
    made = parser(
        "break",
        "take a scope from whoever holds it, and hand it to the next in line",
        "  interlock break deploy\n  interlock break deploy --yes      in a script",
    )
    made.add_argument("scope", metavar="SCOPE")
    made.add_argument("--yes", action="store_true", help="don't ask")
    return made


def _call_break(call: Call) -> int:
    il = call.client()
    if not call.yes:
        if not is_terminal(sys.stdin):
            raise InvalidInput("To break a lock without being asked, say --yes.")
        info = il.show(call.scope)
        if info.held:
            who = " and ".join(printable(holder.describe()) for holder in info.holders)
            print(f"{call.scope} is held by {who or 'a counter without an owner'}.", file=sys.stderr)
            print(
                "It will be told so. Break it? [y/N] ",
                end="",
                file=sys.stderr,
                flush=True,
            )
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                print("Nothing was changed.", file=sys.stderr)
                return 1
    done = il.break_(call.scope)
    who = ", ".join(printable(holder.describe()) for holder in done.holders)
    call.say(done, lambda: f"Taken from {who}." if done.broken else f"Nobody held {call.scope}.")
    return 0


def _cleanup() -> Parser:
    made = parser(
        "cleanup",
        "free every lease, permit and place in a queue that an execution has",
        "  interlock cleanup 77\n  interlock cleanup 77 --scope excel-42 --scope global",
    )
    made.add_argument("execution_id", metavar="EXECUTION_ID")
    made.add_argument(
        "--scope",
        action="append",
        metavar="SCOPE",
        help="look there too, for locks that n8n's own sub-workflows took; may be repeated",
    )
    return made


def _call_cleanup(call: Call) -> int:
    done = call.client().cleanup(call.arguments.execution_id, call.scope)
    freed = f"Cleaned up {', '.join(done.scopes)}." if done.cleaned else done.reason or "It held nothing."
    call.say(done, lambda: freed)
    return 0


COMMANDS = {
    "acquire": (_acquire, _call_acquire),
    "renew": (_renew, _call_renew),
    "release": (_release, _call_release),
    "break": (_break, _call_break),
    "cleanup": (_cleanup, _call_cleanup),
}
