"""limit, once: may this go on?"""

from __future__ import annotations

from ..errors import InvalidInput
from . import HELD, complain
from .options import Call, Parser, parser, seconds
from .output import duration


def _limit() -> Parser:
    made = parser(
        "limit",
        "ask a rate limit: at most N calls in S seconds. Exit code 0 if this one may go on, 75 if not",
        "  interlock limit api --limit 100 --per 60 && curl …\n"
        "  interlock limit api --limit 10 --per 1s --algorithm gcra --wait 30 && curl …\n"
        "  interlock limit api --limit 100 --per 60 --peek --json",
    )
    made.add_argument("scope", metavar="SCOPE")
    made.add_argument("--limit", type=int, metavar="N", help="how many are let through")
    made.add_argument("--per", type=seconds, required=True, metavar="S", help="in how many seconds")
    made.add_argument(
        "--algorithm", default="fixed-window", help="fixed-window (n8n's), sliding-window or gcra"
    )
    made.add_argument("--cost", type=int, default=1, metavar="N", help="how much this call counts as (1)")
    made.add_argument("--burst", type=int, metavar="N", help="gcra: how many may come at once (the limit)")
    made.add_argument("--wait", type=seconds, default=0, metavar="S", help="wait up to S seconds (0)")
    instead = made.add_mutually_exclusive_group()
    instead.add_argument("--peek", action="store_true", help="only look; nothing is counted")
    instead.add_argument("--reset", action="store_true", help="forget what was let through")
    return made


def _call_limit(call: Call) -> int:
    ask = call.client().limit
    if call.reset:
        done = ask.reset(call.scope, per=call.per, algorithm=call.algorithm)
        call.say({"reset": done, "scope": call.scope}, lambda: None)
        return 0
    if call.limit is None:
        raise InvalidInput("--limit is missing: how many are let through?")
    options = {"algorithm": call.algorithm, "cost": call.cost, "burst": call.burst}
    if call.peek:
        decision = ask.peek(call.scope, limit=call.limit, per=call.per, **options)
    else:
        decision = ask(call.scope, limit=call.limit, per=call.per, wait=call.wait, **options)
    call.say(decision, lambda: None)
    if decision.allowed:
        return 0
    again = decision.retry_after
    when = duration(again) if again >= 1 else f"{again:.3g} s"
    complain(f"The limit of {decision.limit} on {call.scope!r} is used up; try again in {when}.")
    return HELD


def _once() -> Parser:
    made = parser(
        "once",
        "succeed for the first caller, and fail (75) for all others until S seconds are over",
        "  interlock once callback-77 --per 60 && ./handle.sh",
    )
    made.add_argument("key", metavar="KEY")
    made.add_argument("--per", type=seconds, default=60, metavar="S", help="for how long (60)")
    return made


def _call_once(call: Call) -> int:
    first = call.client().once(call.key, call.per)
    call.say({"first": first, "key": call.key}, lambda: None)
    return 0 if first else HELD


COMMANDS = {"limit": (_limit, _call_limit), "once": (_once, _call_once)}
