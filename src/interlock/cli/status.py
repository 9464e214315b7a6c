"""status get, set, unset, watch: progress for others to read."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidInput
from ..model import Status
from .options import IDENTITY, Call, Parser, add_identity, parser, seconds
from .output import printable

ACTIONS = ("get", "set", "unset", "watch")


def _status() -> Parser:
    made = parser(
        "status",
        "get, set, unset or watch a progress status",
        "  interlock status set import loading --percent 40 --message 'page 4 of 10'\n"
        "  interlock status get import\n"
        "  interlock status watch import\n"
        "  interlock status unset import",
        "get|set|unset|watch KEY [VALUE] [options]",
    )
    made.add_argument("action", choices=ACTIONS, metavar="get|set|unset|watch")
    made.add_argument("key", metavar="KEY")
    made.add_argument("value", metavar="VALUE", nargs="?", help="for set")
    made.add_argument("--timeout", type=seconds, default=600, metavar="S", help="set: for how long (600)")
    made.add_argument("--percent", type=float, metavar="N", help="set: how far it is, 0 to 100")
    made.add_argument("--message", metavar="TEXT", help="set: what else there is to say")
    made.add_argument("--lock-id", help="set, unset: of the lease whose progress it is")
    add_identity(made)
    return made


def _call_status(call: Call) -> int:
    return _ACTIONS[call.action](call)


def _get(call: Call) -> int:
    seen = call.client().status.get(call.key)
    call.say(seen, lambda: _in_words(seen))
    return 0


def _in_words(seen: Status) -> str | None:
    return None if seen.output is None else printable(seen.describe())


def _set(call: Call) -> int:
    if call.value is None:
        raise InvalidInput("VALUE is missing: interlock status set KEY VALUE.")
    more: dict[str, Any] = {name: call.settings[name] for name in IDENTITY}
    done = call.client().status.set(
        call.key,
        call.value,
        timeout=call.timeout,
        percent=call.percent,
        message=call.message,
        lock_id=call.lock_id,
        **more,
    )
    call.say(done, lambda: None)
    return 0


def _unset(call: Call) -> int:
    done = call.client().status.unset(call.key, lock_id=call.lock_id)
    call.say(done, lambda: None)
    return 0


def _watch(call: Call) -> int:
    for seen in call.client().status.watch(call.key):
        call.say(seen, lambda seen=seen: _in_words(seen) or "-")  # type: ignore[misc]
    return 0


_ACTIONS = {"get": _get, "set": _set, "unset": _unset, "watch": _watch}
COMMANDS = {"status": (_status, _call_status)}
