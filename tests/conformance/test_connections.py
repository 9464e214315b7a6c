"""The ways to reach a Redis, besides plain TCP."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading

import pytest
import trustme

from interlock import StoreUnavailable

from ..servers import RedisServer


class TlsDoor:
    """Speaks TLS to clients and plain TCP to the Redis behind it."""

    def __init__(self, port, context):
        self._target = port
        self._opened = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._open(context)], daemon=True)
        self._thread.start()
        assert self._opened.wait(10)

    async def _open(self, context):
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        self._opened.set()
        await self._closing.wait()

    async def _serve(self, reader, writer):
        inner = await asyncio.open_connection("127.0.0.1", self._target)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await asyncio.gather(self._copy(reader, inner[1]), self._copy(inner[0], writer))

    @staticmethod
    async def _copy(source, target):
        try:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        finally:
            target.close()

    def close(self):
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def door(authority, redis_server):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    door = TlsDoor(redis_server.port, context)
    yield door
    door.close()


def take_turns(il, threads, turns):
    """All of them want the scope at the same time; answers how often they had it."""
    had = []

    def work():
        for _ in range(turns):
            with il.lock("s", wait=30):
                had.append(len(had))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return had


def test_tls(connect, door, authority, tmp_path):
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    il = connect(f"rediss://127.0.0.1:{door.port}/0?ssl_ca_certs={tmp_path / 'ca.pem'}")
    assert take_turns(il, threads=8, turns=25) == list(range(200))


def test_tls_whose_certificate_nobody_vouches_for(connect, door):
    il = connect(f"rediss://127.0.0.1:{door.port}/0")
    with pytest.raises(StoreUnavailable, match="certificate verify failed") as refused:
        il.acquire("s")
    assert "\n" not in str(refused.value)


def test_tls_to_a_server_that_speaks_none(connect, redis_server):
    il = connect(f"rediss://127.0.0.1:{redis_server.port}/0?timeout=1")
    with pytest.raises(StoreUnavailable, match="Can't reach the Redis") as refused:
        il.acquire("s")
    assert "\n" not in str(refused.value)


def test_a_unix_socket(connect, tmp_path):
    with contextlib.closing(RedisServer(unixsocket=str(tmp_path / "redis.sock"))):
        il = connect(f"unix://{tmp_path / 'redis.sock'}?db=3")
        assert take_turns(il, threads=4, turns=10) == list(range(40))


def test_another_database_is_another_world(connect, redis_server):
    il, other = connect(redis_server.url), connect(redis_server.url[:-1] + "1")
    il.acquire("s", wait=0)
    other.acquire("s", wait=0)
