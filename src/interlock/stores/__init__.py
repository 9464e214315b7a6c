"""From a URL to a store. What a store needs is imported when it is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Protocol

from ..errors import InvalidInput, StoreUnavailable
from .base import Signal
from .redis.layout import Layout

Store = Any  # a sync or an async store; see base.py
REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")

WINDOW = 5.0  # seconds of silence after which a waiter counts as dead
GRACE = 10.0  # seconds for which an orphaned counter is respected


class StoreConfig(Protocol):
    shown: str
    window: float

    def keys(self, scope: str) -> tuple[str, str]: ...
    def open(self) -> Store: ...
    def open_async(self, on_signals: Callable[[list[Signal]], None]) -> Store: ...


def default_path() -> str:
    """The file that a user's programs share when no URL says otherwise."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # as the XDG specification wants it
        state = _from_home("~/.local/state")
    return os.path.join(state, "interlock", "interlock.db")


def _from_home(path: str) -> str:
    found = os.path.expanduser(path)
    if not os.path.isabs(found):
        raise StoreUnavailable("There is no home folder for the local file: set HOME, or INTERLOCK_URL.")
    return found


def without_password(url: str) -> str:
    """Of a URL that is wrong, too: whatever stands before an @, as a password may have any character."""
    address = url.partition("?")[0]
    before, at, _ = (address if "@" in address else url).rpartition("@")
    if at:
        scheme, slashes, user = before.rpartition("://")
        url = f"{scheme}{slashes}{user.partition(':')[0]}{':***' if ':' in user else ''}{url[len(before) :]}"
    return re.sub(r"(password=)[^&#]+", r"\1***", url)


class _Options:
    """The part of a URL's query that is Interlock's: ?prefix=, ?liveness=, ?orphan_grace=, ?timeout=."""

    def __init__(self, url: str, prefix: str | None) -> None:
        self.shown = without_password(url)
        own: dict[str, str] = {}
        self.rest: list[tuple[str, str]] = []
        self.url, _, query = url.partition("?")
        if query:
            from urllib.parse import parse_qsl, urlencode  # noqa: PLC0415 - slow to import

            for name, value in parse_qsl(query.partition("#")[0], keep_blank_values=True):
                if name in ("prefix", "liveness", "orphan_grace", "timeout"):
                    own[name] = value
                else:
                    self.rest.append((name, value))
            self.url += f"?{urlencode(self.rest)}" if self.rest else ""
        self.window = self._seconds(own, "liveness", WINDOW)
        self.grace = self._seconds(own, "orphan_grace", GRACE)
        self.timeout = self._seconds(own, "timeout", 5.0)
        self.layout = Layout(own.get("prefix", "") if prefix is None else prefix)

    def _seconds(self, own: dict[str, str], name: str, default: float) -> float:
        try:
            value = float(own.get(name, default))
        except ValueError:
            value = -1.0
        if not 0.1 <= value <= 3600:
            raise StoreUnavailable(
                f"The URL {self.shown} is wrong: {name} must be from 0.1 to 3600 seconds, not {own[name]!r}."
            )
        return value

    def keys(self, scope: str) -> tuple[str, str]:
        return self.layout.counter(scope), self.layout.sidecar(scope)


class _RedisConfig(_Options):
    def open(self) -> Store:
        from .redis.threads import RedisStore  # noqa: PLC0415 - takes 100 ms, and only Redis needs it

        return RedisStore(self)

    def open_async(self, on_signals: Callable[[list[Signal]], None]) -> Store:
        from .redis.tasks import AsyncRedisStore  # noqa: PLC0415

        return AsyncRedisStore(self, on_signals)


class _SqliteConfig(_Options):
    def __init__(self, url: str, prefix: str | None) -> None:
        super().__init__(url, prefix)
        if self.rest:
            name = self.rest[0][0]
            raise StoreUnavailable(f"The URL {self.shown} is wrong: {name!r} is not an option of it.")
        path = url.partition("?")[0].removeprefix("sqlite://")
        if not path.startswith("/") or path == "/":
            raise StoreUnavailable(f"The URL {self.shown} is wrong: write sqlite:///absolute/path/of/the.db.")
        if "#" in url:
            raise StoreUnavailable(f"The URL {self.shown} is wrong: write %23 for a # in the path.")
        if self.layout.prefix:
            raise InvalidInput("prefix is for stores that are shared; give each its own local file instead.")
        path = _decoded(path).lstrip("/")
        self.file = _from_home(path) if path.startswith("~/") else f"/{path}"

    def open(self) -> Store:
        from .sqlite.threads import SqliteStore  # noqa: PLC0415

        return SqliteStore(self)

    def open_async(self, on_signals: Callable[[list[Signal]], None]) -> Store:
        from .sqlite.tasks import AsyncSqliteStore  # noqa: PLC0415

        return AsyncSqliteStore(self, on_signals)


def _decoded(path: str) -> str:
    if "%" not in path:
        return path
    from urllib.parse import unquote  # noqa: PLC0415 - slow to import, and seldom needed

    return unquote(path)


def _encoded(path: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in "%?#" else c for c in path)


def configure(url: str | None, *, prefix: str | None = None) -> StoreConfig:
    """Read a URL; none means INTERLOCK_URL, else the user's own file. Connects to nothing yet."""
    if url is not None and not isinstance(url, str):
        raise InvalidInput(f"url must be a string, not {url!r}.")
    if prefix is not None and not isinstance(prefix, str):
        raise InvalidInput(f"prefix must be a string, not {prefix!r}.")
    chosen = url or os.environ.get("INTERLOCK_URL") or f"sqlite://{_encoded(default_path())}"
    scheme = chosen.partition("://")[0].lower()
    if scheme in REDIS_SCHEMES:
        config: StoreConfig = _RedisConfig(chosen, prefix)
        from .redis.connect import Connector  # noqa: PLC0415

        Connector.check(config)
        return config
    if scheme == "sqlite":
        return _SqliteConfig(chosen, prefix)
    raise StoreUnavailable(
        f"The URL {without_password(chosen)} is wrong: it must begin with redis://, rediss://, unix://, "
        "redis+sentinel:// or sqlite:///."
    )
