"""ls, show, events, version: what stands and what happens."""

from __future__ import annotations

from ..model import Event, Holder, ScopeInfo
from .options import Call, Parser, hint, parser
from .output import age, duration, printable, table


def _ls() -> Parser:
    return parser(
        "ls", "list the scopes that are held or waited for", "  interlock ls\n  interlock ls --json | jq ."
    )


def _call_ls(call: Call) -> int:
    locks = call.client().locks()
    if not locks:
        hint("Nothing is held or waited for.")
    call.say(locks, lambda: table([_HEAD, *map(row_of, locks)]) if locks else None)
    return 0


_HEAD = ("SCOPE", "HELD BY", "FOR", "ENDS IN", "WAITING")


def row_of(info: ScopeInfo) -> tuple[str, ...]:
    first = info.holders[0] if info.holders else None
    more = f" and {len(info.holders) - 1} more" if len(info.holders) > 1 else ""
    who = name_of(first) + more if first else "nobody"
    return (
        printable(info.scope),
        who,
        age(first.locked_at) if first else "",
        _left(first) if first else "",
        str(info.waiting),
    )


def name_of(holder: Holder) -> str:
    return printable(holder.name)


def _left(holder: Holder) -> str:
    return "never" if holder.expires_in is None else duration(holder.expires_in)


def _show() -> Parser:
    made = parser("show", "tell who holds a scope, and who waits for it", "  interlock show nightly")
    made.add_argument("scope", metavar="SCOPE")
    return made


def _call_show(call: Call) -> int:
    info = call.client().show(call.scope)
    call.say(info, lambda: in_words(info))
    return 0


def in_words(info: ScopeInfo) -> str:
    lines = [f"{printable(info.scope)} is {'held' if info.held else 'free'}"]
    for holder in info.holders:
        lines.append(f"  held by   {printable(holder.describe())}")
        ends = f"for {age(holder.locked_at)}, " if holder.locked_at else ""
        lines.append(f"            {ends}ends in {_left(holder)} unless renewed")
        lines.append(f"            lock_id {printable(holder.lock_id or '-')}  fence {holder.fence or '-'}")
    for number, waiter in enumerate(info.waiters[:20], 1):
        lines.append(f"  {number:>3}. in line  {printable(waiter.name)}")
    if info.waiting > 20:
        lines.append(f"       and {info.waiting - 20} more")
    return "\n".join(lines)


def _events() -> Parser:
    return parser(
        "events",
        "tell what happens, as it happens, until you stop it",
        "  interlock events\n  interlock events --json | jq 'select(.event == \"denied\")'",
    )


def _call_events(call: Call) -> int:
    with call.client().events() as events:
        hint("Following; Ctrl-C ends it.")
        for event in events:
            call.say(event, lambda event=event: _event_in_words(event))  # type: ignore[misc]
    return 0


def _event_in_words(event: Event) -> str:
    if event.event == "missed":
        return f"{'some' if event.count is None else event.count} events were missed"
    what = f"{event.at}  {event.event:<12}{printable(event.scope or '')}"
    if event.status is not None:
        what += f"  {printable(event.status.describe())}"
    return f"{what}  {name_of(event.holder)}" if event.holder else what


def _version() -> Parser:
    return parser("version", "print the version", "  interlock version")


def _call_version(call: Call) -> int:
    from importlib.metadata import version  # noqa: PLC0415 - slow

    number = version("interlock")
    call.say({"version": number}, lambda: f"interlock {number}")
    return 0


COMMANDS = {
    "ls": (_ls, _call_ls),
    "show": (_show, _call_show),
    "events": (_events, _call_events),
    "version": (_version, _call_version),
}
