"""doctor: is the store fit, and where does each setting come from?"""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version

from ..errors import InterlockError, InvalidInput, StoreUnavailable
from ..settings import DEFAULTS
from ..stores import without_password
from ..stores.base import FAILED, OK, WARNING, Finding
from ..threads import Interlock
from . import UNAVAILABLE
from .options import Call, Parser, parser
from .output import printable

SLOW = 50.0  # ms


def _doctor() -> Parser:
    return parser(
        "doctor",
        "check the store and the configuration. Exit code 69 if something does not work",
        "  interlock doctor\n  interlock doctor --url redis://localhost:6379/0",
    )


def _call_doctor(call: Call) -> int:
    findings = list(_configuration(call))
    if all(finding.state != FAILED for finding in findings):
        findings += _examine(call)
    call.say([finding._asdict() for finding in findings], lambda: "\n".join(map(_line, findings)))
    return UNAVAILABLE if any(finding.state == FAILED for finding in findings) else 0


def _line(finding: Finding) -> str:
    return f"{finding.state:<8} {finding.what:<14} {printable(finding.says)}"


def _configuration(call: Call) -> Iterator[Finding]:
    yield Finding("interlock", OK, f"{version('interlock')}, Python {platform.python_version()}")
    try:
        file = call.settings.file
    except InvalidInput as error:
        yield Finding("interlock.toml", FAILED, str(error))
        return
    yield Finding("interlock.toml", OK, file or "there is none")
    for name in DEFAULTS:
        try:
            value, origin = call.settings.setting(name)
        except InvalidInput as error:
            yield Finding(name, FAILED, str(error))
            continue
        if origin != "default":
            shown = without_password(value) if isinstance(value, str) else f"{value:g} s"
            yield Finding(name, OK, f"{shown}, from {origin}")


def _examine(call: Call) -> Iterator[Finding]:
    try:
        il = call.client()
        yield from _works(il)
        yield from il._store.findings()
        yield from _orphans(il)
    except InterlockError as error:
        yield Finding("store", FAILED, str(error))


def _works(il: Interlock) -> Iterator[Finding]:
    """Everything once, on a scope that nobody else uses; it also shows a right that is missing."""
    scope = f"interlock-doctor-{secrets.token_hex(4)}"
    took = []
    for _ in range(5):
        start = time.perf_counter()
        il.show(scope)
        took.append((time.perf_counter() - start) * 1000)
    fastest = min(took)
    yield Finding("store", WARNING if fastest > SLOW else OK, f"{il.url} answers in {fastest:.1f} ms")
    steps: dict[str, Callable[[], object]] = {
        "locks": lambda: il.acquire(scope, wait=0, ttl=10, execution_id=scope).release(),
        "limits": lambda: il.limit(scope, limit=1, per=1, algorithm="sliding-window"),
        "status": lambda: (il.status.set(scope, "ok", timeout=10), il.status.unset(scope)),
        "clean-up": lambda: il.cleanup(scope),
    }
    for what, step in steps.items():
        try:
            step()
        except StoreUnavailable as error:
            yield Finding(what, FAILED, str(error))
        else:
            yield Finding(what, OK, "work" if what.endswith("s") and what != "status" else "works")


def _orphans(il: Interlock) -> Iterator[Finding]:
    locks = il.locks()
    orphans = [info.scope for info in locks if any(holder.lock_id is None for holder in info.holders)]
    if orphans:
        named = printable(", ".join(orphans[:5]))
        yield Finding(
            "orphans", WARNING, f"{named}: a counter without an owner, cleared by the next who asks"
        )
    waiting = sum(info.waiting for info in locks)
    held = sum(info.held for info in locks)
    yield Finding("in use", OK, f"{held} scopes are held, {waiting} wait")


COMMANDS = {"doctor": (_doctor, _call_doctor)}
