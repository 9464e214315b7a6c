from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from ..servers import RedisServer, redis_binaries
from .proxy import Proxy


@pytest.fixture(params=list(redis_binaries()))
def own_redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A Redis for one test, which may hurt it. Every version in turn."""
    server = RedisServer(redis_binaries()[request.param])
    yield server
    server.close()


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    """In front of the shared Redis."""
    proxy = Proxy(redis_server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def background() -> Callable[..., Future[Any]]:
    """Runs a function in a thread that the end of the test does not wait for."""

    def start(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    return start
