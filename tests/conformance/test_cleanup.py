"""Clean-up after an execution: all that it has, nothing that others have; on every store."""

from __future__ import annotations

import json
import threading

import pytest

from interlock import InvalidInput, LeaseLost, LockHeld

from ..conftest import eventually
from ..servers import redis_binaries


def holders(il, scope):
    return [holder.lock_id for holder in il.show(scope).holders]


def test_every_lease_and_permit_of_the_execution_is_freed_on_whatever_scope(il):
    il.acquire("a", execution_id="77")
    il.acquire("b", execution_id="77", permits=2)
    other = il.acquire("b", execution_id="78", permits=2)
    mine = il.acquire("c", execution_id="78")
    anonymous = il.acquire("d")
    done = il.cleanup("77")
    assert (done.cleaned, done.cleaned_count, done.scopes, done.reason) == (True, 2, ("a", "b"), None)
    assert not il.show("a").held
    assert holders(il, "b") == [other.lock_id]
    assert holders(il, "c") == [mine.lock_id]
    assert holders(il, "d") == [anonymous.lock_id]


def test_both_permits_of_one_scope_are_freed(il):
    for _ in range(2):
        il.acquire("b", execution_id="77", permits=3)
    done = il.cleanup("77")
    assert (done.cleaned_count, done.scopes) == (1, ("b",))
    assert not il.show("b").held


def test_the_next_in_line_gets_what_is_freed(il, connect, store):
    lease = il.acquire("a", execution_id="77")
    got = []
    other = connect(store.url)
    thread = threading.Thread(target=lambda: got.append(other.acquire("a", wait=30)))
    thread.start()
    eventually(lambda: il.show("a").waiting)
    assert il.cleanup("77").cleaned
    thread.join(10)
    assert got[0].fence > lease.fence


def test_a_place_in_the_queue_is_freed_and_whoever_lives_on_there_is_told(il, connect, store):
    holder = il.acquire("a")
    other = connect(store.url)
    raised, got = [], []

    def wait(execution_id):
        try:
            got.append(other.acquire("a", wait=60, execution_id=execution_id))
        except LeaseLost as error:
            raised.append(str(error))

    threads = [threading.Thread(target=wait, args=(execution_id,)) for execution_id in ("77", "78")]
    for number, thread in enumerate(threads):
        thread.start()
        eventually(lambda n=number: il.show("a").waiting == n + 1)
    done = connect(store.url).cleanup("77")
    assert (done.cleaned, done.scopes) == (True, ("a",))
    threads[0].join(20)
    assert "its execution was cleaned up while it waited" in raised[0]
    assert [waiter.execution_id for waiter in il.show("a").waiters] == ["78"]
    assert holders(il, "a") == [holder.lock_id]
    holder.release()
    threads[1].join(20)
    assert got[0].execution_id == "78"


def test_a_holder_that_lives_on_is_told(il):
    lease = il.acquire("a", execution_id="77")
    il.cleanup("77")
    with pytest.raises(LeaseLost):
        lease.renew()


def test_progress_goes_with_the_lease(il):
    il.status.begin("import", execution_id="77")
    assert il.cleanup("77").scopes == ("import",)
    assert il.status.get("import").output is None


def test_cleaning_up_twice_finds_nothing_the_second_time(il):
    il.acquire("a", execution_id="77")
    assert il.cleanup("77").cleaned
    again = il.cleanup("77")
    assert (again.cleaned, again.cleaned_count, again.scopes) == (False, 0, ())
    assert "77" in again.reason


def test_there_is_a_reason_when_there_was_nothing_to_go_by(il):
    done = il.cleanup("77")
    assert (done.cleaned, done.cleaned_count, done.scopes) == (False, 0, ())
    assert done.reason == "Execution 77 is on no list, and no scopes were named."


def test_scopes_that_it_does_not_hold_are_left_alone(il):
    lease = il.acquire("a", execution_id="78")
    done = il.cleanup("77", ["a", "free"])
    assert (done.cleaned, done.cleaned_count, done.reason) == (False, 0, None)
    assert holders(il, "a") == [lease.lock_id]


def test_what_was_released_or_has_expired_is_not_counted(il):
    il.acquire("a", execution_id="77").release()
    il.acquire("b", execution_id="77", ttl=0.1)
    eventually(lambda: not il.show("b").held)
    kept = il.acquire("b", execution_id="78")
    done = il.cleanup("77", ["a", "b"])
    assert not done.cleaned
    assert holders(il, "b") == [kept.lock_id]


def test_a_lock_id_that_went_to_another_execution_is_that_ones(il):
    il.acquire("b", execution_id="77", ttl=60)  # keeps the list of what it got
    il.acquire("a", execution_id="77", lock_id="shared", ttl=0.1)
    eventually(lambda: not il.show("a").held)
    il.acquire("a", execution_id="78", lock_id="shared")
    assert il.cleanup("77", ["a"]).scopes == ("b",)
    assert holders(il, "a") == ["shared"]


def test_execution_ids_and_scopes_of_any_text_are_kept_apart(il):
    names = ["7", "77", '"7"', "7\\", "ä 進", "7:execution", "7*"]
    for name in names:
        il.acquire(f"scope of {name}", execution_id=name)
    for name in names:
        done = il.cleanup(name)
        assert done.scopes == (f"scope of {name}",)
    assert il.locks() == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("",), "execution_id must have 1 to 512"),
        ((77,), "execution_id must be a string"),
        (("77", "a"), "scopes must be a list"),
        (("77", [""]), "scope must have 1 to 512"),
        (("77", 5), "scopes must be a list"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(il, arguments, says):
    il.acquire("a", execution_id="77")
    with pytest.raises(InvalidInput, match=says):
        il.cleanup(*arguments)
    assert il.show("a").held


@pytest.mark.parametrize("version", list(redis_binaries()))
class TestOnRedis:
    def test_locks_of_n8ns_sub_workflows_are_freed_where_they_are_named(self, clean_redis, connect, version):
        server = clean_redis(version)
        il = connect(server.url)
        with server.client() as n8n:
            for scope, execution in (("a", "501"), ("b", "501"), ("c", 501), ("d", "502")):
                n8n.incr(f"n8n-lock-{scope}")
                n8n.expire(f"n8n-lock-{scope}", 600)
                meta = {"lock_id": f"of-{scope}", "execution_id": execution, "workflow_name": "Sync"}
                n8n.set(f"n8n-lock-{scope}:meta", json.dumps(meta))
                n8n.expire(f"n8n-lock-{scope}:meta", 600)
            done = il.cleanup("501", ["a", "c", "d"])
            assert (done.cleaned_count, done.scopes) == (2, ("a", "c"))
            assert sorted(n8n.keys("n8n-lock-*")) == [
                "n8n-lock-b",
                "n8n-lock-b:meta",
                "n8n-lock-d",
                "n8n-lock-d:meta",
            ]
            with pytest.raises(LockHeld):
                il.acquire("b", wait=0)

    def test_a_counter_whose_owner_is_unknown_is_left_alone(self, clean_redis, connect, version):
        server = clean_redis(version)
        with server.client() as n8n:
            n8n.set("n8n-lock-a", "1", ex=600)
            assert not connect(server.url).cleanup("501", ["a"]).cleaned
            assert n8n.get("n8n-lock-a") == "1"

    def test_the_list_does_not_outlive_what_it_points_to_by_more_than_its_ttl(
        self, clean_redis, connect, version
    ):
        server = clean_redis(version)
        il = connect(server.url)
        with server.client() as admin:
            lists = lambda: admin.keys("interlock:*:execution")  # noqa: E731
            lease = il.acquire("a", execution_id="77", ttl=60)
            assert 50 < admin.ttl(lists()[0]) <= 60
            lease.renew(ttl=600)
            assert 590 < admin.ttl(lists()[0]) <= 600
            lease.release()
            assert lists() == []
            il.acquire("b", execution_id="77", ttl=0.2)
            eventually(lambda: lists() == [])

    def test_the_list_forgets_what_has_ended_though_the_execution_goes_on(
        self, clean_redis, connect, version
    ):
        server = clean_redis(version)
        il = connect(server.url)
        il.acquire("long", execution_id="77", ttl=600)
        for number in range(20):
            il.acquire(f"s-{number}", execution_id="77", ttl=0.05)
        with server.client() as admin:

            def trimmed():
                il.acquire("again", execution_id="77", ttl=0.05, lock_id="again")
                return admin.zcard("interlock:77:execution") <= 3

            eventually(trimmed)
        assert "long" in il.cleanup("77").scopes

    def test_a_thousand_executions_leave_nothing_behind(self, clean_redis, connect, version):
        server = clean_redis(version)
        il = connect(server.url)
        for number in range(1000):
            il.acquire("a", execution_id=f"{number}").release()
        with server.client() as admin:
            assert admin.keys("interlock:*:execution") == []
