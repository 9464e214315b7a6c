"""Operations as Redis commands, and the replies read back. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import hiredis

from ...model import Holder, ScopeInfo, holder_from_json, waiter_from_json
from ...protocol import opening
from ..base import (
    Acquire,
    Break,
    Done,
    Gone,
    Granted,
    Operation,
    Queued,
    Refused,
    Release,
    Renew,
    Show,
    Signal,
)
from .layout import LOCK, Layout

_SCRIPTS = Path(__file__).parent / "scripts"


def _part(line: re.Match[str]) -> str:
    return (_SCRIPTS / f"{line[1]}.lua").read_text()


pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


@cache
def script(name: str) -> tuple[str, str]:
    """Text and SHA-1 of a script, with the parts that it includes."""
    text = re.sub(r"^--#include (\w+)$", _part, (_SCRIPTS / f"{name}.lua").read_text(), flags=re.MULTILINE)
    return text, hashlib.sha1(text.encode()).hexdigest()


@cache
def _texts() -> dict[str, str]:
    """The scripts' texts by their SHA-1."""
    names = (file.stem for file in _SCRIPTS.glob("[!_]*.lua"))
    return {sha: text for text, sha in map(script, names)}


class Commands:
    def __init__(self, layout: Layout, window: int, grace: int) -> None:
        self.layout = layout
        self.client = ""
        self._settings = (layout.wake_channels, str(window), str(grace))

    def _evalsha(self, name: str, scope: str, *args: str) -> tuple[Any, ...]:
        keys = self.layout.scope_keys(scope)
        return ("EVALSHA", script(name)[1], str(len(keys)), *keys, scope, *self._settings, *args)

    def encode(self, op: Operation) -> tuple[Any, ...]:
        command: tuple[Any, ...] = _ENCODERS[type(op)](self, op)
        return command

    def decode(self, op: Operation, reply: Any) -> Any:
        return _DECODERS[type(op)](op, reply)

    def _acquire(self, op: Acquire) -> tuple[Any, ...]:
        return self._evalsha(
            "acquire",
            op.scope,
            op.lock_id,
            opening(op.lock_id),
            op.identity,
            str(op.ttl),
            str(op.permits),
            self.client if op.queue else "",
            str(op.place),
        )

    def _release(self, op: Release) -> tuple[Any, ...]:
        return self._evalsha("release", op.scope, op.lock_id, opening(op.lock_id), str(op.fence))

    def _renew(self, op: Renew) -> tuple[Any, ...]:
        return self._evalsha("renew", op.scope, op.lock_id, opening(op.lock_id), str(op.ttl))

    def _break(self, op: Break) -> tuple[Any, ...]:
        return self._evalsha("break", op.scope)

    def _show(self, op: Show) -> tuple[Any, ...]:
        return self._evalsha("show", op.scope)

    def with_text(self, command: tuple[Any, ...]) -> tuple[Any, ...]:
        """The same call for a server that has not seen the script yet."""
        return ("EVAL", _texts()[command[1]], *command[2:])

    def greetings(self) -> tuple[tuple[str, ...], ...]:
        """What a connection that listens says first. The first may be refused, the second must not."""
        return (
            ("CLIENT", "TRACKING", "ON", "NOLOOP"),
            ("SUBSCRIBE", self.layout.wake_channels + self.client),
        )

    def read_push(self, push: list[Any]) -> list[Signal]:
        """Signals in a push message of the server's."""
        kind = push[0]
        if kind == b"message":
            return [tuple(push[2].decode().split("\n"))]
        if kind == b"invalidate":
            if push[1] is None:  # FLUSHALL
                return [("all",)]
            locks = (self.layout.prefix + LOCK).encode()
            keys = [key.decode(errors="replace") for key in push[1] if key.startswith(locks)]
            scopes = {self.layout.scope_of(key) for key in keys}
            return [("touched", scope) for scope in scopes if scope is not None]
        return []


_ENCODERS: dict[type, Callable[[Commands, Any], tuple[Any, ...]]] = {
    Acquire: Commands._acquire,
    Release: Commands._release,
    Renew: Commands._renew,
    Break: Commands._break,
    Show: Commands._show,
}


def _holder(record: bytes, left: int) -> Holder:
    return holder_from_json(record, left / 1000 if left >= 0 else None)


def _holders(flat: list[Any]) -> tuple[Holder, ...]:
    return tuple(_holder(flat[i], flat[i + 1]) for i in range(0, len(flat), 2))


def _read_acquire(op: Acquire, reply: Any) -> Granted | Refused | Queued:
    if reply[0] == 1:
        return Granted(reply[1], reply[2].decode(), reply[3])
    holder = _holder(reply[2], reply[3])
    if reply[0] == 0:
        return Refused(holder, int(reply[4]), reply[1])
    return Queued(holder, int(reply[4]), reply[5], bool(reply[6]), bool(reply[7]))


def _read_done(op: Operation, reply: Any) -> Done | Gone:
    if reply[0] == 1:
        return Done()
    return Gone(_holder(reply[1], reply[2]) if len(reply) > 1 else None)


def _read_show(op: Show, reply: Any) -> ScopeInfo:
    return ScopeInfo(
        scope=op.scope,
        held=bool(reply[1]),
        count=reply[0],
        holders=_holders(reply[1]),
        waiting=reply[2],
        waiters=tuple(waiter_from_json(w) for w in reply[3]),
    )


_DECODERS: dict[type, Callable[[Any, Any], Any]] = {
    Acquire: _read_acquire,
    Release: _read_done,
    Renew: _read_done,
    Break: lambda op, reply: _holders(reply),
    Show: _read_show,
}
