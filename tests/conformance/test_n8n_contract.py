"""Locks shared with n8n sub-workflows of the old pattern, command by command as its Redis node sends them."""

from __future__ import annotations

import json
import threading
import time

import pytest

from interlock import LeaseLost, LockHeld

from ..conftest import eventually
from ..servers import redis_binaries

GRACE = 0.6
KEY, META = "n8n-lock-s", "n8n-lock-s:meta"


class Node:
    """n8n's Redis node: each operation with the commands it is made of."""

    def __init__(self, server):
        self.redis = server.client()

    def incr(self, key, ttl):
        value = self.redis.incr(key)
        self.redis.expire(key, ttl)
        return value

    def get(self, key):
        if self.redis.type(key) == "none":
            return None
        return self.redis.get(key)

    def set(self, key, value, ttl):
        self.redis.set(key, value)
        self.redis.expire(key, ttl)

    def delete(self, key):
        self.redis.delete(key)


class SubWorkflows(Node):
    """`lock_acquisition` (fail fast), `lock_release` and the clean-up, as people run them today."""

    def acquire(self, lock_id="n8n-1", execution_id="501", ttl=600):
        if self.incr(KEY, ttl) != 1:
            return False
        identity = {
            "lock_id": lock_id,
            "workflow_id": "wf9",
            "workflow_name": "Excel sync",
            "execution_id": execution_id,
            "locked_at": "2026-01-01T00:00:00.000Z",
        }
        self.set(META, json.dumps(identity, indent=1), ttl)
        return True

    def release(self, lock_id):
        meta = self.get(META)
        if meta is None:
            return "idempotent"
        if json.loads(meta)["lock_id"] != lock_id:
            return "LOGIC ERROR"
        self.delete(KEY)
        self.delete(META)
        return "released"

    def clean_up(self, execution_id):
        meta = self.get(META)
        if meta and json.loads(meta)["execution_id"] == execution_id:
            self.delete(KEY)
            self.delete(META)


@pytest.fixture(params=list(redis_binaries()))
def store(request, clean_redis):
    """Only Redis: n8n can't see the local file."""
    return clean_redis(request.param)


@pytest.fixture
def il(connect, store):
    return connect(f"{store.url}?orphan_grace={GRACE}")


@pytest.fixture
def n8n(store):
    return SubWorkflows(store)


def in_background(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_n8n_sees_a_lock_taken_in_python(il, n8n):
    with il.lock("s", execution_id="77", workflow_id="w1", workflow_name="Import", ttl=60) as lease:
        assert n8n.get(KEY) == "1"
        sidecar = json.loads(n8n.get(META))
        assert sidecar["lock_id"] == lease.lock_id
        assert sidecar["execution_id"] == "77"
        assert sidecar["workflow_id"] == "w1"
        assert sidecar["workflow_name"] == "Import"
        assert sidecar["locked_at"] == lease.locked_at
        assert sidecar["fence"] == lease.fence
        assert abs(n8n.redis.pttl(KEY) - n8n.redis.pttl(META)) < 1000
        assert not n8n.acquire()
        assert n8n.release("somebody-else") == "LOGIC ERROR"
    assert n8n.acquire()


def test_python_sees_a_lock_taken_by_n8n(il, n8n):
    assert n8n.acquire()
    with pytest.raises(LockHeld, match=r"workflow Excel sync, execution 501 since 2026-01-01") as refused:
        il.acquire("s", wait=0)
    assert refused.value.holder.workflow_id == "wf9"
    assert refused.value.count == 1
    assert n8n.redis.ttl(KEY) > 590
    assert n8n.release("n8n-1") == "released"
    il.acquire("s", wait=0)


def test_a_waiter_in_python_is_woken_when_n8n_releases(il, n8n):
    n8n.acquire()
    got = []
    thread = in_background(lambda: got.append(il.acquire("s", wait=30)))
    eventually(lambda: il.show("s").waiting)
    n8n.release("n8n-1")
    thread.join()
    assert got[0].fence
    assert n8n.get(KEY) == "1"


def test_a_waiter_is_woken_by_the_end_of_a_bare_counter(il, n8n):
    n8n.incr(KEY, 600)
    thread = in_background(lambda: il.acquire("s", wait=30).release())
    eventually(lambda: il.show("s").waiting)
    n8n.delete(KEY)
    thread.join(10)
    assert not thread.is_alive()


def test_n8n_releases_what_python_took(il, n8n):
    lease = il.acquire("s")
    assert n8n.release(lease.lock_id) == "released"
    assert not il.show("s").held
    with pytest.raises(LeaseLost):
        lease.renew()


def test_the_old_clean_up_frees_what_the_failed_execution_held(il, n8n):
    il.acquire("s", execution_id="77")
    n8n.clean_up("78")
    assert il.show("s").held
    n8n.clean_up("77")
    assert not il.show("s").held


def test_python_releases_what_n8n_took(il, n8n):
    n8n.acquire(lock_id="n8n-1")
    assert il.release("s", "n8n-1").idempotent is False
    assert n8n.get(KEY) is None
    assert n8n.get(META) is None


def test_a_contenders_shorter_ttl_gives_the_scope_to_nobody(il, n8n):
    lease = il.acquire("s", ttl=600)
    n8n.incr(KEY, 600)
    n8n.redis.pexpire(KEY, 1)
    eventually(lambda: n8n.get(KEY) is None)
    with pytest.raises(LockHeld):
        il.acquire("s", wait=0)
    assert n8n.get(KEY) is not None, "the contender repaired the counter"
    assert il.show("s").holders[0].expires_in > 590
    n8n.redis.delete(KEY)
    lease.renew()
    assert n8n.redis.ttl(KEY) > 590, "so does the renewal"


def test_a_contenders_shorter_ttl_does_not_end_the_hold_of_an_n8n_workflow(il, n8n):
    n8n.acquire(ttl=600)
    n8n.incr(KEY, 600)
    n8n.redis.pexpire(KEY, 1)
    eventually(lambda: n8n.get(KEY) is None)
    with pytest.raises(LockHeld, match="Excel sync"):
        il.acquire("s", wait=0)


def test_contenders_do_not_keep_a_dead_holders_lease_alive(il, n8n):
    il.acquire("s", ttl=0.2)
    n8n.incr(KEY, 600)
    eventually(lambda: n8n.get(META) is None)
    n8n.incr(KEY, 600)
    with pytest.raises(LockHeld):  # it might be an n8n run that has not written its sidecar yet
        il.acquire("s", wait=0)
    n8n.incr(KEY, 600)
    il.acquire("s", wait=20)


def test_a_counter_without_sidecar_and_expiry_heals_after_the_grace(il, n8n):
    n8n.redis.incr(KEY)
    with pytest.raises(LockHeld, match="a counter without an owner"):
        il.acquire("s", wait=0)
    il.acquire("s", wait=20)
    assert n8n.redis.ttl(KEY) > 0


def test_a_counter_below_zero_heals_too(il, n8n):
    n8n.redis.set(KEY, -5)
    with pytest.raises(LockHeld):
        il.acquire("s", wait=0)
    with pytest.raises(LockHeld):
        il.acquire("s", wait=0)
    il.acquire("s", wait=20).release()


def test_it_heals_for_callers_that_fail_fast_too(il, n8n):
    n8n.redis.incr(KEY)
    with pytest.raises(LockHeld):
        il.acquire("s", wait=0)

    def taken():
        n8n.incr(KEY, 600)  # other callers go on trying
        try:
            return il.acquire("s", wait=0)
        except LockHeld:
            return None

    eventually(taken)


def test_a_counter_with_an_expiry_is_respected_until_then_and_no_longer(il, n8n):
    n8n.redis.incr(KEY)
    n8n.redis.pexpire(KEY, int(GRACE * 2000))
    with pytest.raises(LockHeld):
        il.acquire("s", wait=0)
    thread = in_background(lambda: il.acquire("s", wait=30))
    time.sleep(GRACE * 1.3)
    assert thread.is_alive(), "the grace is for what has no end of its own"
    n8n.incr(KEY, 600)  # prolonging counts for nothing
    thread.join(10)
    assert not thread.is_alive()


def test_a_sidecar_without_expiry_heals_once_its_counter_is_gone(il, n8n):
    n8n.redis.set(META, '{"lock_id":"n8n-1"}')
    with pytest.raises(LockHeld):
        il.acquire("s", wait=0)
    il.acquire("s", wait=20)


def test_a_sidecar_that_is_no_json_is_respected(il, n8n):
    n8n.incr(KEY, 600)
    n8n.set(META, "not json {", 600)
    with pytest.raises(LockHeld):
        il.acquire("s", wait=0)
    assert il.show("s").held


def test_no_poller_slips_in_while_the_scope_is_handed_over(il, n8n):
    lease = il.acquire("s")
    thread = in_background(lambda: il.acquire("s", wait=30))
    eventually(lambda: il.show("s").waiting)
    with n8n.redis.monitor() as monitor:
        lease.release()
        thread.join()
        n8n.redis.echo("end")
        for command in monitor.listen():
            if command["command"] == "ECHO end":
                break
            assert not command["command"].startswith(f"DEL {KEY}") or command["client_type"] == "lua"
    assert n8n.get(KEY) == "1"
    assert not n8n.acquire()


def test_n8n_waits_for_all_permits_of_a_semaphore(il, n8n):
    leases = [il.acquire("s", permits=2) for _ in range(2)]
    assert n8n.get(KEY) == "2"
    assert json.loads(n8n.get(META))["permits"] == 2
    assert not n8n.acquire()
    for lease in leases:
        assert not n8n.acquire()
        lease.release()
    assert n8n.acquire()
    with pytest.raises(LockHeld):
        il.acquire("s", wait=0, permits=2)


def test_a_scope_named_like_a_sidecar_is_refused(il):
    with pytest.raises(ValueError, match=":meta"):
        il.acquire("s:meta", wait=0)


def test_every_key_has_an_expiry(il, n8n):
    il.acquire("s", ttl=60)
    il.acquire("t", ttl=60, permits=3)
    thread = in_background(lambda: il.acquire("s", wait=30))
    eventually(lambda: il.show("s").waiting)
    keys = n8n.redis.keys()
    assert len(keys) >= 8
    assert all(n8n.redis.ttl(key) > 0 for key in keys)
    il.break_("s")
    thread.join()
