"""Connections to Redis, by redis-py: addresses, TLS, passwords, Sentinel. Both kinds speak RESP3."""

from __future__ import annotations

import asyncio
import contextlib
import select
import ssl
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ...errors import StoreUnavailable

try:
    import hiredis
    import redis
    import redis.asyncio
    import redis.connection
    import redis.sentinel
    from redis.asyncio.sentinel import Sentinel as AsyncSentinel
    from redis.backoff import NoBackoff
    from redis.exceptions import AuthenticationError, RedisError, ResponseError
    from redis.retry import Retry

    from .commands import pack
except ImportError as missing:
    raise StoreUnavailable("Redis needs two more packages: pip install 'interlock[redis]'.") from missing

if TYPE_CHECKING:
    from .. import _RedisConfig

# redis-py says nothing of these types.
_parse_url: Any = redis.connection.parse_url
_Sentinel: Any = redis.sentinel.Sentinel
_AsyncSentinel: Any = AsyncSentinel

UNREACHABLE = (OSError, hiredis.ProtocolError)
"""The connection is of no use any more; what was sent over it may have been carried out."""


class ErrorReply(Exception):
    """What the server answered instead of a result; a message like any other."""


def is_error(message: Any, code: str) -> bool:
    return isinstance(message, ErrorReply) and code in str(message)  # 6.2 puts a script's errors into others


def new_reader() -> Any:
    return hiredis.Reader(replyError=ErrorReply)


class Wire:
    """A connection that redis-py has opened, from then on spoken over directly: half the time a call."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket = connection._sock
        self._reader = new_reader()
        self._tls = isinstance(self._socket, ssl.SSLSocket)
        # One thread may send while another receives, which a socket can do, but TLS can't.
        self._turn = threading.Lock() if self._tls else contextlib.nullcontext()
        self._timeout: float | None = self._socket.gettimeout()

    @property
    def timeout(self) -> float | None:
        """Seconds that a message may take to be sent, or to arrive."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        if seconds != self._timeout:  # it costs a system call
            self._timeout = seconds
            self._socket.settimeout(seconds)

    def send(self, packed: bytes) -> None:
        with self._turn:
            self._socket.sendall(packed)

    def receive(self) -> Any:
        """The next message."""
        while True:
            message = self._reader.gets()
            if message is not False:
                return message
            self._take_in()

    def receive_all(self, timeout: float, bell: int | None = None) -> list[Any]:
        """What has arrived by the time, or by the moment the descriptor `bell` has something to read."""
        messages = self._parsed()
        if not messages:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if bell is not None:
                poll.register(bell, select.POLLIN)
            if self._socket.fileno() in dict(poll.poll(timeout * 1000 + 1)):
                self._take_in()
                messages = self._parsed()
        return messages

    def _parsed(self) -> list[Any]:
        messages: list[Any] = []
        while (message := self._reader.gets()) is not False:
            messages.append(message)
        return messages

    def _take_in(self) -> None:
        with self._turn:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
            while self._tls and self._socket.pending():  # decrypted already: no poll would tell
                self._reader.feed(self._socket.recv(65536))

    def close(self) -> None:
        self._connection.disconnect()


class _Packer:
    """For what redis-py says while it connects: hiredis crashes when Ctrl-C meets it packing a number."""

    @staticmethod
    def pack(name: str, *words: Any) -> list[bytes]:
        texts = (word if isinstance(word, (str, bytes)) else str(word) for word in words)
        return [pack((*name.split(), *texts))]


class Connector:
    """Makes connections for one URL."""

    def __init__(self, config: _RedisConfig) -> None:
        self.shown = config.shown
        self._sentinels: list[tuple[str, int]] = []
        self._service = ""
        parts = urlsplit(config.url)
        self._tls = parts.scheme.startswith("rediss")
        if parts.scheme.endswith("+sentinel"):
            self._options = self._read_sentinel_url(parts)
        else:
            database = parts.path.strip("/")
            if parts.scheme != "unix" and database and not database.isdecimal():
                raise ValueError("its path is the number of a database, as in redis://host:6379/0")
            self._options = dict(_parse_url(config.url))
        self._unix = "path" in self._options
        for drop in ("connection_class", "max_connections"):
            self._options.pop(drop, None)
        self._options.setdefault("socket_timeout", config.timeout)
        self._options.setdefault("socket_connect_timeout", config.timeout)
        self.timeout = float(self._options["socket_timeout"])
        self._options.setdefault("client_name", "interlock")
        self._options["protocol"] = 3
        self._options["driver_info"] = None  # else looked up on disk, and told in two round trips

    @classmethod
    def check(cls, config: Any) -> None:
        """Refuse a URL that can't be meant, before anything is done with it."""
        try:
            cls(config)._make(False, "localhost", 6379)
        except (ValueError, TypeError, redis.RedisError) as error:
            reason = str(error).rstrip(".").replace("AbstractConnection.__init__() got an ", "")
            if reason.startswith("Port"):  # it would be quoted, and may be a part of the password
                reason = "its port is no number; in a password, write %2F for /, %3F for ?, %23 for #"
            raise StoreUnavailable(f"The URL {config.shown} is wrong: {reason}.") from None

    def _read_sentinel_url(self, parts: Any) -> dict[str, Any]:
        """redis+sentinel://[user:password@]host[:port][,host[:port]…]/service[/db]"""
        credentials, _, hosts = parts.netloc.rpartition("@")
        for host in hosts.split(","):
            name, _, port = host.partition(":")
            if not name:
                raise ValueError("a Sentinel's host is missing")
            self._sentinels.append((name, int(port or 26379)))
        path = [p for p in parts.path.split("/") if p]
        if not 1 <= len(path) <= 2:
            raise ValueError("write redis+sentinel://host:26379,host:26379/service/0")
        self._service = path[0]
        options: dict[str, Any] = dict(
            _parse_url(f"redis://localhost/{path[1] if path[1:] else 0}?{parts.query}")
        )
        del options["host"]
        user, _, password = credentials.partition(":")
        if user:
            options["username"] = unquote(user)
        if password:
            options["password"] = unquote(password)
        return options

    def _kind(self, asynchronous: bool) -> Any:
        module = redis.asyncio if asynchronous else redis
        if self._unix:
            return module.UnixDomainSocketConnection
        return module.SSLConnection if self._tls else module.Connection

    def _make(self, asynchronous: bool, host: str = "", port: int = 0, timeout: float | None = None) -> Any:
        options = dict(self._options)
        if timeout is not None:
            options["socket_timeout"] = options["socket_connect_timeout"] = timeout
        if asynchronous:
            options["socket_timeout"] = None  # the line watches its own replies
        else:
            options["command_packer"] = _Packer
        retry: Any = redis.asyncio.retry.Retry if asynchronous else Retry
        options["retry"] = retry(NoBackoff(), 0)
        if self._sentinels:
            options.update(host=host, port=port)
        return self._kind(asynchronous)(**options)

    def _unreachable(self, error: BaseException) -> StoreUnavailable:
        if isinstance(error, (AuthenticationError, ResponseError)):
            return refusal(error, self.shown)
        reason = str(error)
        if self._sentinels:  # what each of them said, at length
            reason = reason.partition(" : ")[0]
        reason = reason.rstrip(".") or f"no answer within {self.timeout:g} s"
        return StoreUnavailable(f"Can't reach the Redis at {self.shown}: {reason}.")

    def connect(self, timeout: float | None = None) -> Wire:
        try:
            host, port = "", 0
            if self._sentinels:
                sentinel = _Sentinel(self._sentinels, socket_timeout=timeout or self.timeout)
                host, port = sentinel.discover_master(self._service)
            connection = self._make(False, host, port, timeout)
            connection.connect()
        except (RedisError, OSError) as error:
            raise self._unreachable(error) from error
        return Wire(connection)

    async def connect_async(self) -> asyncio.StreamWriter:
        """A connection that redis-py has opened; the caller gives its transport another protocol."""
        try:
            host, port = "", 0
            if self._sentinels:
                sentinel = _AsyncSentinel(self._sentinels, socket_timeout=self.timeout)
                host, port = await sentinel.discover_master(self._service)
            connection = self._make(True, host, port)
            async with asyncio.timeout(self.timeout):
                await connection.connect()
        except (RedisError, OSError) as error:
            raise self._unreachable(error) from error
        writer: asyncio.StreamWriter = connection._writer
        connection._reader = connection._writer = None  # it is not redis-py's any more
        return writer


_NO_RIGHT = "does not permit this user a command or key that Interlock needs (see docs/redis.md)"
_MEANINGS = (
    ("NOPERM", _NO_RIGHT),
    ("no permissions", _NO_RIGHT),
    ("user executing the script", _NO_RIGHT),
    ("NOAUTH", "asks for a password"),
    ("already authenticated", "asks for a password"),
    ("WRONGPASS", "refuses the user name or password"),
    ("invalid username-password", "refuses the user name or password"),
    ("OOM command", "is out of memory"),
    ("READONLY", "is a replica that takes no writes"),
    ("LOADING", "is still loading its data"),
    ("loading the dataset", "is still loading its data"),
    ("MISCONF", "can't persist to disk and refuses writes"),
    ("MASTERDOWN", "has lost its master"),
)


def refusal(error: BaseException, url: str, maybe_done: bool = False) -> StoreUnavailable:
    """What the server's error reply means to a user."""
    text = str(error).rstrip(".")
    for sign, meaning in _MEANINGS:
        if sign in text:
            return StoreUnavailable(f"The Redis at {url} {meaning}: {text}.", maybe_done)
    return StoreUnavailable(f"The Redis at {url} answered: {text}.", maybe_done)
