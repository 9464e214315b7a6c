"""A master that dies, a Sentinel that sees it, and a replica that has missed the last writes."""

from __future__ import annotations

import contextlib
import subprocess

import pytest
import redis

from interlock import LeaseLost, StoreUnavailable

from ..conftest import eventually
from ..servers import RedisServer, free_port, redis_binaries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


class Watched:
    """A master, its replica, and a Sentinel that watches both."""

    def __init__(self, binary, folder, ends):
        self._ends = ends
        self.master = self._server(binary, **{"repl-diskless-sync-delay": "0"})
        self.replica = self._server(binary, replicaof=f"127.0.0.1 {self.master.port}")
        with self.replica.client() as client:
            eventually(lambda: client.info("replication")["master_link_status"] == "up")
        self.port = free_port()
        file = folder / "sentinel.conf"
        file.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor mymaster 127.0.0.1 {self.master.port} 1\n"
            "sentinel down-after-milliseconds mymaster 500\n"
            "sentinel failover-timeout mymaster 4000\n"
        )
        process = subprocess.Popen([binary, str(file), "--sentinel"], stdout=subprocess.DEVNULL)
        self._ends.callback(process.wait)
        self._ends.callback(process.kill)
        self.sentinel = redis.Redis(port=self.port, decode_responses=True)
        self._ends.callback(self.sentinel.close)
        eventually(self._knows_the_replica)
        self.url = f"redis+sentinel://127.0.0.1:{self.port}/mymaster/0?timeout=1"

    def _server(self, binary, **options):
        server = RedisServer(binary, **options)
        self._ends.callback(server.close)
        return server

    def _knows_the_replica(self):
        with contextlib.suppress(redis.ConnectionError):
            return self.sentinel.info("sentinel")["master0"] == {
                "name": "mymaster",
                "status": "ok",
                "address": f"127.0.0.1:{self.master.port}",
                "slaves": 1,
                "sentinels": 1,
            }
        return False

    def cut_off_replica(self):
        """From now on the replica misses what the master is told."""
        self.replica.pause()
        with self.master.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")
            eventually(lambda: client.info("replication")["connected_slaves"] == 0)

    def lose_master(self):
        self.master.kill()
        self.replica.resume()
        self.await_failover()

    def fail_over(self):
        def starts():
            with contextlib.suppress(redis.ResponseError):  # no suitable replica, yet
                return self.sentinel.execute_command("SENTINEL", "FAILOVER", "mymaster")
            return False

        eventually(starts, 30)
        self.await_failover()

    def await_failover(self):
        def is_master():
            with contextlib.suppress(redis.RedisError), self.replica.client() as client:
                return client.info("replication")["role"] == "master"
            return False

        eventually(is_master, 60)


@pytest.fixture(params=list(redis_binaries()))
def watched(request, tmp_path):
    with contextlib.ExitStack() as ends:
        yield Watched(redis_binaries()[request.param], tmp_path, ends)


def when_back(attempt, *args, **kwargs):
    """What the attempt answers once there is a master again."""

    def answer():
        with contextlib.suppress(StoreUnavailable):
            return attempt(*args, **kwargs)
        return None

    return eventually(answer, 30)


def test_fences_grow_although_the_replica_missed_the_last_leases(watched, connect):
    il = connect(watched.url)
    il.acquire("s", wait=0).release()
    watched.cut_off_replica()
    fences = []
    for _ in range(3):
        lease = il.acquire("s", wait=0)
        fences.append(lease.fence)
        lease.release()
    unknown_to_the_replica = il.acquire("s", wait=0)
    watched.lose_master()
    after = when_back(il.acquire, "s", wait=0)
    fences += [unknown_to_the_replica.fence, after.fence]
    assert fences == sorted(set(fences))


def test_those_in_line_are_served_one_at_a_time(watched, connect, background):
    il = connect(watched.url)
    watched.cut_off_replica()
    holder = il.acquire("s", ttl=60)
    waiters = []
    for number in range(3):
        waiters.append(background(il.acquire, "s", wait=60))
        eventually(lambda n=number: il.show("s").waiting == n + 1)
    watched.lose_master()
    when_back(il.acquire, "another scope").release()
    fences = [holder.fence]
    while waiters:
        served = eventually(lambda: [w for w in waiters if w.done()], 90)
        assert len(served) == 1
        waiters.remove(served[0])
        lease = served[0].result()
        fences.append(lease.fence)
        lease.release()
    assert fences == sorted(set(fences))


def test_a_holder_whose_lease_the_replica_knows_keeps_it(watched, connect):
    il = connect(watched.url)
    with il.lock("s", ttl=30) as lease:
        with watched.master.client() as client:
            client.wait(1, 5000)
        watched.cut_off_replica()
        watched.lose_master()
        when_back(lease.renew)
        assert il.show("s").holders[0].lock_id == lease.lock_id
    assert not il.show("s").held


def test_a_holder_whose_lease_the_replica_missed_is_told(watched, connect):
    il = connect(watched.url)
    watched.cut_off_replica()
    with pytest.raises(LeaseLost), il.lock("s", ttl=3) as lease:
        watched.lose_master()
        eventually(lambda: lease.lost)


def test_a_planned_failover_takes_nothing_from_anybody(watched, connect, background):
    il = connect(watched.url)
    with il.lock("s", ttl=20) as lease:
        waiter = background(il.acquire, "s", wait=60)
        eventually(lambda: il.show("s").waiting)
        with watched.master.client() as client:
            client.wait(1, 5000)
        watched.fail_over()
        when_back(lease.renew)
        assert not waiter.done()
    assert waiter.result(30).fence > lease.fence


def test_an_unknown_service_is_named(watched, connect):
    with pytest.raises(StoreUnavailable, match="nobody") as refused:
        connect(f"redis+sentinel://127.0.0.1:{watched.port}/nobody").acquire("s")
    assert "\n" not in str(refused.value)
