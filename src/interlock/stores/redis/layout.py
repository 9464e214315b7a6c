"""The names of all keys and channels. Nothing else in the project spells one.

Plain: `n8n-lock-<scope>`, as n8n's sub-workflows write it. For a cluster the scope stands in braces, so
that all keys of a scope lie in one slot. A prefix goes before everything.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...errors import InvalidInput

LOCK = "n8n-lock-"
LIMIT = "n8n-ratelimit-"
STATUS = "process_status_"
OWN = "interlock:"
_FAMILIES = (LOCK, LIMIT, STATUS, OWN)
_WINDOW = re.compile(r"(.+)-(\d{1,15})", re.DOTALL)
_USED = re.compile(r"(.+):(sliding-window|gcra)-(\d{1,15})", re.DOTALL)


class Layout:
    def __init__(self, prefix: str = "", hash_tags: bool = False) -> None:
        if prefix.startswith(_FAMILIES):
            raise InvalidInput(f"prefix must not begin like a key of Interlock's: {prefix!r}.")
        if any(c in prefix for c in "{}\r\n "):
            raise InvalidInput(f"prefix must not contain braces, spaces or line breaks: {prefix!r}.")
        self.prefix = prefix
        self.hash_tags = hash_tags
        self.wake_channels = f"{prefix}{OWN}wake:"
        self.events = f"{prefix}{OWN}events"  # a channel
        self.followed = f"{prefix}{OWN}followed"
        """Stands while somebody follows the events."""
        self.scope_keys = lru_cache(maxsize=1024)(self._scope_keys)
        self.limit_keys = lru_cache(maxsize=1024)(self._limit_keys)

    def _tagged(self, scope: str) -> str:
        if not self.hash_tags:
            return scope
        if scope.startswith("}"):  # an empty hash tag would scatter the scope's keys
            raise InvalidInput(f"scope must not begin with '}}' on a cluster: {scope!r}.")
        return "{" + scope + "}"

    def counter(self, scope: str) -> str:
        return f"{self.prefix}{LOCK}{self._tagged(scope)}"

    def sidecar(self, scope: str) -> str:
        return f"{self.counter(scope)}:meta"

    def _own(self, name: str) -> str:
        return f"{self.prefix}{OWN}{self._tagged(name)}"

    def _scope_keys(self, scope: str) -> tuple[str, ...]:
        """In the order that the scripts expect."""
        own = self._own(scope)
        return (
            self.counter(scope),
            self.sidecar(scope),
            f"{own}:memo",
            f"{own}:queue",
            f"{own}:waiters",
            f"{own}:seen",
            f"{own}:permits",
            f"{own}:holders",
            *self.status_keys(scope),
        )

    def status_keys(self, key: str) -> tuple[str, ...]:
        return (f"{self.prefix}{STATUS}{self._tagged(key)}", f"{self._own(key)}:status", self._followed(key))

    def _followed(self, scope: str) -> str:
        """One key can't lie beside those of every scope on a cluster, where nobody can follow yet."""
        return f"{self._own(scope)}:followed" if self.hash_tags else self.followed

    def key_of_status(self, name: str) -> str:
        key = name.removeprefix(self.prefix + STATUS)
        return key[1:-1] if self.hash_tags else key

    def _limit_keys(self, scope: str, algorithm: str, per: int) -> tuple[str, ...]:
        """What is used, what was booked and given back, and (fixed windows) the last window booked."""
        own = self._own(scope)
        if algorithm == "fixed-window":  # the window's number follows
            used = f"{self.prefix}{LIMIT}{self._tagged(scope)}-"
        else:
            used = f"{own}:{algorithm}-{per}"
        return (used, f"{own}:vacant-{algorithm}-{per}", self._followed(scope), f"{own}:ahead-{per}")

    def once(self, key: str) -> str:
        return f"{self._own(key)}:once"

    def execution(self, execution_id: str) -> str:
        """A sorted set of all leases and places of an execution: '<lock_id>\n<scope>' -> its end."""
        return execution_id.join(self.execution_frame)

    @property
    def execution_frame(self) -> tuple[str, str]:
        """What stands before and after the execution's id in the key of its set."""
        opening, closing = self._own("\n").split("\n")
        return opening, f"{closing}:execution"

    def scan_patterns(self) -> tuple[str, ...]:
        """Glob patterns that match a key of every scope that is held or waited for."""
        escaped = self._escaped_prefix()
        return (f"{escaped}{LOCK}*", f"{escaped}{OWN}*:queue", f"{escaped}{OWN}*:permits")

    def limit_patterns(self) -> tuple[str, ...]:
        """Likewise for every limit of which something is used."""
        escaped = self._escaped_prefix()
        return (f"{escaped}{LIMIT}*", f"{escaped}{OWN}*:sliding-window-*", f"{escaped}{OWN}*:gcra-*")

    def _escaped_prefix(self) -> str:
        return "".join(f"\\{c}" if c in "*?[]\\^-" else c for c in self.prefix)

    def scope_of(self, key: str) -> str | None:
        """The scope of a counter, a sidecar, a queue or a permits key."""
        name = key.removeprefix(self.prefix)
        if name.startswith(LOCK):
            scope = name.removeprefix(LOCK).removesuffix(":meta")
        elif name.startswith(OWN):
            scope = name.removeprefix(OWN).rpartition(":")[0]
        else:
            return None
        return self._untagged(scope)

    def limit_of(self, key: str) -> tuple[str, str, int] | None:
        """Scope and algorithm of a key of `limit_patterns`, and its `per` or the number of its window."""
        name = key.removeprefix(self.prefix)
        if name.startswith(LIMIT):
            found = _WINDOW.fullmatch(name.removeprefix(LIMIT))
            parts = found and (found[1], "fixed-window", found[2])
        else:
            found = _USED.fullmatch(name.removeprefix(OWN))
            parts = found and (found[1], found[2], found[3])
        if not parts:
            return None
        scope = self._untagged(parts[0])
        return None if scope is None else (scope, parts[1], int(parts[2]))

    def _untagged(self, scope: str) -> str | None:
        if not self.hash_tags:
            return scope
        return scope[1:-1] if scope.startswith("{") and scope.endswith("}") else None
