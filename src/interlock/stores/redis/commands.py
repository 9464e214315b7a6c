"""Operations as Redis commands, and the replies read back. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import hiredis

from ...model import Holder, LimitInUse, ScopeInfo, holder_from_json, status_from_json, waiter_from_json
from ...protocol.leases import opening
from ..base import (
    FAR,
    FOLLOWED_FOR,
    LOOK,
    Acquire,
    Begin,
    Break,
    Done,
    Follow,
    GetStatus,
    Gone,
    Granted,
    Limit,
    LimitsInUse,
    Once,
    Operation,
    Owned,
    Queued,
    Refund,
    Refused,
    Release,
    Renew,
    Report,
    Reset,
    Ruling,
    Scopes,
    Seen,
    SetStatus,
    Show,
    Signal,
    Taken,
    UnsetStatus,
    Used,
)
from .layout import LOCK, STATUS, Layout

_SCRIPTS = Path(__file__).parent / "scripts"


def _text(name: str) -> str:
    """A script with the parts that it includes."""
    text = (_SCRIPTS / f"{name}.lua").read_text()
    return re.sub(r"^--#include (\w+)$", lambda line: _text(line[1]), text, flags=re.MULTILINE)


pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


@cache
def script(name: str) -> tuple[str, str]:
    """Text and SHA-1 of a script."""
    text = _text(name)
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
        self._packed_limit = lru_cache(maxsize=1024)(self._pack)
        self._settings = (
            layout.wake_channels,
            str(window),
            str(grace),
            layout.events,
            *layout.execution_frame,
        )

    def _evalsha(self, name: str, scope: str, *args: str) -> tuple[Any, ...]:
        """What has to do with a lease."""
        keys = self.layout.scope_keys(scope)
        return ("EVALSHA", script(name)[1], str(len(keys)), *keys, scope, *self._settings, *args)

    def _evalsha_of(self, name: str, keys: tuple[str, ...], subject: str, *args: str) -> tuple[Any, ...]:
        """What has not."""
        return ("EVALSHA", script(name)[1], str(len(keys)), *keys, subject, self.layout.events, *args)

    def encode(self, op: Operation) -> tuple[Any, ...]:
        command: tuple[Any, ...] = _ENCODERS[type(op)](self, op)
        return command

    def packed(self, op: Operation) -> tuple[bytes, tuple[Any, ...]]:
        """The command as it is sent, and as it is. A limit's never changes, whoever asks how often."""
        return self._packed_limit(op) if type(op) is Limit else self._pack(op)

    def _pack(self, op: Operation) -> tuple[bytes, tuple[Any, ...]]:
        command = self.encode(op)
        return pack(command), command

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
            self.client if op.queue else "" if op.fails else "?",
            str(op.place),
        )

    def _release(self, op: Release) -> tuple[Any, ...]:
        execution = op.execution_id or ""
        return self._evalsha("release", op.scope, op.lock_id, opening(op.lock_id), str(op.fence), execution)

    def _renew(self, op: Renew) -> tuple[Any, ...]:
        return self._evalsha("renew", op.scope, op.lock_id, opening(op.lock_id), str(op.ttl), str(op.fence))

    def _begin(self, op: Begin) -> tuple[Any, ...]:
        lease, (value, details) = op.lease, op.status
        name, ttl = lease.lock_id, str(lease.ttl)
        return self._evalsha(
            "begin", lease.scope, name, opening(name), lease.identity, ttl, value, details[:-1]
        )

    def _break(self, op: Break) -> tuple[Any, ...]:
        return self._evalsha("break", op.scope)

    def _show(self, op: Show) -> tuple[Any, ...]:
        return self._evalsha("show", op.scope)

    def _owned(self, op: Owned) -> tuple[Any, ...]:
        return ("ZRANGE", self.layout.execution(op.execution_id), "0", "-1")

    def _limit(self, op: Limit, script_name: str = "", *more: str) -> tuple[Any, ...]:
        numbers = (op.limit, op.per, op.cost, op.burst, op.patience)
        keys = self.layout.limit_keys(op.scope, op.algorithm, op.per)
        return self._evalsha_of(
            script_name or f"limit_{op.algorithm}", keys, op.scope, *map(str, numbers), *more
        )

    def _refund(self, op: Refund) -> tuple[Any, ...]:
        return self._limit(op.of, f"refund_{op.of.algorithm}", str(op.slot))

    def _reset(self, op: Reset) -> tuple[Any, ...]:
        return self._limit(Limit(op.scope, op.algorithm, 1, op.per, 1, 1, LOOK), "limit_reset")

    def _used(self, op: Used) -> tuple[Any, ...]:
        of = Limit(op.scope, op.algorithm, 1, op.which, 1, 1, LOOK)
        return self._limit(of, f"used_{op.algorithm}", str(op.which))

    def _once(self, op: Once) -> tuple[Any, ...]:
        return self._evalsha_of("once", (self.layout.once(op.key),), op.token, str(op.per))

    def _set_status(self, op: SetStatus) -> tuple[Any, ...]:
        value, details = op.words
        return self._evalsha("status_set", op.key, value, details[:-1], str(op.timeout))

    def _report(self, op: Report) -> tuple[Any, ...]:
        value, details = op.words
        return self._evalsha("report", op.scope, op.lock_id, opening(op.lock_id), value, details[:-1])

    def _get_status(self, op: GetStatus) -> tuple[Any, ...]:
        return self._evalsha_of("status_get", self.layout.status_keys(op.key)[:2], op.key)

    def _unset_status(self, op: UnsetStatus) -> tuple[Any, ...]:
        return self._evalsha("status_unset", op.key)

    def _follow(self, op: Follow) -> tuple[Any, ...]:
        return ("SET", self.layout.followed, "1", "PX", str(FOLLOWED_FOR))

    def listing(self, op: Scopes | LimitsInUse) -> tuple[tuple[str, ...], Callable[[str], Any]]:
        """For a SCAN: the patterns, and what a key that matches names, if anything."""
        if isinstance(op, Scopes):
            return self.layout.scan_patterns(), self.layout.scope_of
        return self.layout.limit_patterns(), self.layout.limit_of

    def with_text(self, command: tuple[Any, ...]) -> tuple[Any, ...]:
        """The same call for a server that has not seen the script yet."""
        return ("EVAL", _texts()[command[1]], *command[2:])

    def greetings(self, follows: bool) -> list[tuple[str, ...]]:
        """What a connection that listens says first. The first may be refused, the others must not."""
        channels = [self.layout.wake_channels + self.client, self.layout.events]
        subscribe = [("SUBSCRIBE", channel) for channel in channels[: 1 + follows]]
        return [("CLIENT", "TRACKING", "ON", "NOLOOP"), *subscribe]

    def read_push(self, push: list[Any]) -> list[Signal]:
        """Signals in a push message of the server's."""
        kind = push[0]
        if kind == b"message":
            text = push[2].decode(errors="replace")
            if push[1].decode() == self.layout.events:
                return [("event", text)]
            return [tuple(text.split("\n"))]
        if kind == b"invalidate":
            if push[1] is None:  # FLUSHALL
                return [("all",), ("gap",)]
            touched = {self._touched(key.decode(errors="replace")) for key in push[1]}
            return [signal for signal in touched if signal is not None]
        return []

    def _touched(self, key: str) -> Signal | None:
        name = key.removeprefix(self.layout.prefix)
        if name.startswith(LOCK):
            scope = self.layout.scope_of(key)
            return None if scope is None else ("touched", scope)
        return ("status", self.layout.key_of_status(key)) if name.startswith(STATUS) else None


_ENCODERS: dict[type, Callable[[Commands, Any], tuple[Any, ...]]] = {
    Acquire: Commands._acquire,
    Release: Commands._release,
    Renew: Commands._renew,
    Begin: Commands._begin,
    Break: Commands._break,
    Show: Commands._show,
    Owned: Commands._owned,
    Limit: Commands._limit,
    Refund: Commands._refund,
    Reset: Commands._reset,
    Used: Commands._used,
    Once: Commands._once,
    SetStatus: Commands._set_status,
    Report: Commands._report,
    GetStatus: Commands._get_status,
    UnsetStatus: Commands._unset_status,
    Follow: Commands._follow,
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


def _read_begin(op: Begin, reply: Any) -> Granted | Taken:
    if reply[0] == 1:
        return Granted(reply[1], reply[2].decode(), reply[3])
    value = None if reply[4] is None else reply[4].decode(errors="replace")
    status = status_from_json(op.lease.scope, value, reply[5], None)
    return Taken(_holder(reply[2], reply[3]) if reply[2] else None, reply[1], status)


def _read_owned(op: Owned, reply: Any) -> list[tuple[str, str]]:
    pairs = (member.decode(errors="replace").partition("\n") for member in reply)
    return [(scope, lock_id) for lock_id, _, scope in pairs]


def _read_ruling(op: Limit, reply: Any) -> Ruling:
    allowed, used, remaining, delay, reset_at, slot = reply
    return Ruling(allowed == 1, used, remaining, delay / 1e6, reset_at / 1e6, slot)


def _read_used(op: Used, reply: Any) -> LimitInUse | None:
    used, per, ends = reply
    if used <= 0:
        return None
    return LimitInUse(scope=op.scope, algorithm=op.algorithm, per=per / 1000, used=used, reset_at=ends / 1e6)


def _read_written(op: SetStatus | UnsetStatus, reply: Any) -> Done | Gone:
    return Done() if reply[0] == 1 else Gone(holder_from_json(reply[1]))


def _read_status(op: GetStatus, reply: Any) -> Seen:
    value, details, left = reply
    output = None if value is None else value.decode(errors="replace")
    status = status_from_json(op.key, output, details, left / 1000 if left >= 0 else None)
    return Seen(status, left + 1 if left >= 0 else FAR)


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
    Begin: _read_begin,
    Break: lambda op, reply: _holders(reply),
    Show: _read_show,
    Owned: _read_owned,
    Limit: _read_ruling,
    Refund: lambda op, reply: reply == 1,
    Reset: lambda op, reply: reply == 1,
    Used: _read_used,
    Once: lambda op, reply: reply == 1,
    SetStatus: _read_written,
    Report: _read_done,
    GetStatus: _read_status,
    UnsetStatus: _read_written,
    Follow: lambda op, reply: Done(),
}
