from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock import Interlock

from .facade import AsyncFacade
from .servers import LocalFile, RedisServer, redis_binaries

# Under nohup, or in the background of a script, they are ignored, and all that the tests start inherits that.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

STORES = [*redis_binaries(), "sqlite"]


@pytest.fixture(scope="session")
def _servers() -> Iterator[dict[str, RedisServer]]:
    running: dict[str, RedisServer] = {}
    yield running
    for server in running.values():
        server.close()


@pytest.fixture
def clean_redis(_servers: dict[str, RedisServer]) -> Callable[[str], RedisServer]:
    """Of a version: a running Redis with nothing in it. Tests that hurt it start one of their own."""

    def clean(version: str) -> RedisServer:
        if version not in _servers:
            _servers[version] = RedisServer(redis_binaries()[version])
        with _servers[version].client() as client:
            client.flushall()
            client.script_flush()
        return _servers[version]

    return clean


@pytest.fixture
def redis_server(clean_redis: Callable[[str], RedisServer]) -> RedisServer:
    return clean_redis(next(iter(redis_binaries())))


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clean_redis: Callable[[str], RedisServer]) -> Any:
    """Every store in turn; has a `url`."""
    return LocalFile(tmp_path) if request.param == "sqlite" else clean_redis(request.param)


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes clients of either kind, all with the methods of Interlock."""
    clients: list[Any] = []

    def make(url: str, **options: Any) -> Any:
        clients.append((Interlock if request.param == "sync" else AsyncFacade)(url, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def il(connect: Callable[..., Any], store: Any) -> Any:
    """A client of either kind on every store."""
    return connect(store.url)


@pytest.fixture
def run_python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python processes that end with the test. Arguments are in `sys.argv[1:]`."""
    processes: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [sys.executable, "-u", "-c", textwrap.dedent(code), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


def eventually(condition: Callable[[], Any], seconds: float = 15.0) -> Any:
    """The first true answer of the condition; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def see_renewed(il: Any, *scopes: str) -> None:
    """Wait until each of the scopes is held for longer than it was before; fails when it is not held."""

    def left(scope: str) -> float:
        return il.show(scope).holders[0].expires_in

    ends = {scope: left(scope) + time.monotonic() for scope in scopes}
    for scope, end in ends.items():
        eventually(lambda scope=scope, end=end: time.monotonic() + left(scope) > end)


@contextlib.contextmanager
def collecting(following: Any) -> Iterator[list[Any]]:
    """Everything that an iterator of a client's brings, as it comes, until the block ends."""
    items: list[Any] = []

    with following:
        thread = threading.Thread(target=lambda: [items.append(item) for item in following])
        thread.start()
        yield items
    thread.join(30)
    assert not thread.is_alive(), "it did not end when it was closed"
