"""What a lease promises, on every store, for threads and for tasks."""

from __future__ import annotations

import threading

import pytest

from interlock import InvalidInput, LeaseLost, LockHeld, NotOwner, WaitTimeout

from ..conftest import eventually, see_renewed


def test_the_second_is_refused_while_the_first_holds(il):
    with il.lock("excel-42", execution_id="77", workflow_name="Import") as lease:
        with pytest.raises(LockHeld) as refused:
            il.acquire("excel-42", wait=0)
        assert refused.value.holder.lock_id == lease.lock_id
        assert refused.value.count == 1
        assert "Import" in str(refused.value)
        assert "77" in str(refused.value)
    il.acquire("excel-42", wait=0).release()


def test_a_lease_carries_the_names_of_the_contract(il):
    lease = il.acquire(
        "excel-42", wait=0, workflow_id="w1", workflow_name="Import", execution_id="77", label="nightly"
    )
    assert lease.acquired is True
    assert (lease.count, lease.scope) == (1, "excel-42")
    assert lease.key == "n8n-lock-excel-42"
    assert lease.meta_key == "n8n-lock-excel-42:meta"
    assert (lease.workflow_id, lease.workflow_name, lease.execution_id) == ("w1", "Import", "77")
    assert lease.label == "nightly"
    assert lease.locked_at.endswith("Z")


def test_scopes_do_not_disturb_one_another(il):
    with il.lock("a"), il.lock("b"):
        assert [info.scope for info in il.locks()] == ["a", "b"]


def test_waiting_ends_with_a_timeout_that_names_the_holder(il):
    with il.lock("s", label="the holder"):
        with pytest.raises(WaitTimeout, match="the holder") as late:
            il.acquire("s", wait=0.1)
        assert late.value.waited >= 0.1
        assert il.show("s").waiting == 0


def test_a_failed_wait_leaves_no_lease_behind(il):
    with il.lock("s"), pytest.raises(WaitTimeout):
        il.acquire("s", wait=0.05)
    assert not il.show("s").held


def test_waiters_are_served_in_the_order_in_which_they_came(il, connect, store):
    other = connect(store.url)
    served = []

    def wait_for_turn(number):
        with (il if number % 2 else other).lock("s", wait=30):
            served.append(number)

    with il.lock("s"):
        threads = []
        for number in range(8):
            threads.append(threading.Thread(target=wait_for_turn, args=(number,)))
            threads[-1].start()
            eventually(lambda n=number: il.show("s").waiting == n + 1)
    for thread in threads:
        thread.join()
    assert served == list(range(8))


def test_a_newcomer_does_not_overtake_those_in_line(il, connect, store):
    first = il.acquire("s")
    got = []
    thread = threading.Thread(target=lambda: got.append(il.acquire("s", wait=30)))
    thread.start()
    eventually(lambda: il.show("s").waiting)
    first.release()
    with pytest.raises(LockHeld):
        connect(store.url).acquire("s", wait=0)
    thread.join()
    got[0].release()


def test_acquiring_again_with_the_same_lock_id_is_the_same_lease(il, connect, store):
    first = il.acquire("s", lock_id="mine", ttl=60)
    again = connect(store.url).acquire("s", lock_id="mine", wait=0, ttl=60)
    assert (again.fence, again.locked_at, again.count) == (first.fence, first.locked_at, 1)
    assert len(il.show("s").holders) == 1


def test_releasing_twice_is_idempotent(il):
    lease = il.acquire("s")
    done = il.release("s", lease.lock_id)
    assert (done.released, done.idempotent, done.scope, done.lock_id) == (True, False, "s", lease.lock_id)
    assert il.release("s", lease.lock_id).idempotent is True
    assert il.acquire("t").release().idempotent is False


def test_only_the_holder_releases_and_renews(il):
    lease = il.acquire("s", workflow_name="Import", execution_id="77")
    for attempt in (il.release, il.renew):
        with pytest.raises(NotOwner, match=r"^LOGIC ERROR: .*Import.*77") as refused:
            attempt("s", "somebody-else")
        assert refused.value.holder.lock_id == lease.lock_id
    assert il.show("s").holders[0].lock_id == lease.lock_id


def test_a_contender_changes_nothing_for_the_holder(il):
    il.acquire("s", ttl=600)
    before = il.show("s").holders[0]
    for _ in range(3):
        with pytest.raises(LockHeld):
            il.acquire("s", wait=0, ttl=0.05)
        with pytest.raises(WaitTimeout):
            il.acquire("s", wait=0.01, ttl=0.05)
    after = il.show("s").holders[0]
    assert (after.lock_id, after.fence, after.locked_at) == (before.lock_id, before.fence, before.locked_at)
    assert after.expires_in > 590


def test_a_lease_ends_with_its_ttl(il):
    lease = il.acquire("s", ttl=0.2)
    with il.lock("s", wait=10):
        assert lease.lost
        with pytest.raises(LeaseLost):
            lease.check()


def test_renewing_prolongs(il):
    lease = il.acquire("s", ttl=20)
    assert il.renew("s", lease.lock_id, ttl=100).renewed
    assert il.show("s").holders[0].expires_in > 90
    assert lease.renew(200).ttl == 200
    assert il.show("s").holders[0].expires_in > 190
    lease.check()


def test_a_held_lock_renews_itself(il):
    with il.lock("s", ttl=3) as lease:
        for _ in range(4):  # longer in all than the ttl
            see_renewed(il, "s")
        lease.check()
        assert il.show("s").holders[0].lock_id == lease.lock_id


def test_fences_grow(il, connect, store):
    other = connect(store.url)
    fences = []
    for number in range(20):
        with (il if number % 2 else other).lock("s", permits=1 + number % 3) as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


def test_breaking_gives_the_scope_to_the_next_and_tells_the_holder(il):
    holder = il.acquire("s", label="first")
    got = []
    thread = threading.Thread(target=lambda: got.append(il.acquire("s", wait=30)))
    thread.start()
    eventually(lambda: il.show("s").waiting)
    broken = il.break_("s")
    assert broken.broken
    assert broken.holders[0].label == "first"
    thread.join()
    with pytest.raises(LeaseLost):
        holder.renew()
    assert holder.lost
    with pytest.raises(LeaseLost):
        holder.check()
    got[0].release()
    assert il.break_("s").broken is False


def test_leaving_a_block_whose_lease_was_broken_raises(il):
    with pytest.raises(LeaseLost, match="broken"), il.lock("s"):
        il.break_("s")


def test_leaving_a_block_whose_scope_has_another_holder_raises_and_leaves_that_one_alone(il):
    with pytest.raises(LeaseLost, match="the next"), il.lock("s"):
        il.break_("s")
        il.acquire("s", label="the next")
    assert il.show("s").holders[0].label == "the next"


def test_what_the_body_raised_matters_more_than_the_loss(il):
    with pytest.raises(ZeroDivisionError), il.lock("s"):
        il.break_("s")
        raise ZeroDivisionError


def test_a_lost_lease_is_told_without_asking(il):
    lost = []
    lease = il.acquire("s", ttl=0.6, renew=True, on_lost=lost.append)
    il.break_("s")
    eventually(lambda: lost)
    assert lease.lost


def test_show_tells_holders_and_waiters(il):
    assert il.show("s").held is False
    with il.lock("s", label="holding"):
        thread = threading.Thread(target=lambda: il.acquire("s", wait=30, label="waiting").release())
        thread.start()
        info = eventually(lambda: il.show("s").waiting and il.show("s"))
        assert info.held
        assert info.count == 1
        assert info.holders[0].label == "holding"
        assert info.waiters[0].label == "waiting"
        assert 25 < info.holders[0].expires_in <= 30
    thread.join()
    assert il.locks() == []


def test_the_decorator_holds_the_scope_for_each_call(il):
    @il.exclusive("s", wait=0)
    def job(number):
        with pytest.raises(LockHeld):
            il.acquire("s", wait=0)
        return number + 1

    assert job(1) == 2
    assert job(2) == 3
    assert not il.show("s").held


def test_the_decorator_finds_its_scope_in_the_arguments(il):
    @il.exclusive(lambda file: f"excel-{file}")
    def job(file):
        return [info.scope for info in il.locks()]

    assert job(7) == ["excel-7"]


def test_a_lock_object_can_be_entered_again(il):
    lock = il.lock("s")
    with lock as first:
        pass
    with lock as second:
        assert second.lock_id != first.lock_id


class TestSemaphores:
    def test_admit_as_many_as_there_are_permits(self, il):
        leases = [il.acquire("s", wait=0, permits=3) for _ in range(3)]
        assert [lease.count for lease in leases] == [1, 2, 3]
        with pytest.raises(LockHeld):
            il.acquire("s", wait=0, permits=3)
        leases[1].release()
        il.acquire("s", wait=0, permits=3)
        assert len(il.show("s").holders) == 3

    def test_are_as_wide_as_the_narrowest_holder(self, il):
        il.acquire("s", wait=0, permits=2)
        il.acquire("s", wait=0, permits=5)
        with pytest.raises(LockHeld):
            il.acquire("s", wait=0, permits=5)

    def test_exclude_locks_and_are_excluded_by_them(self, il):
        permit = il.acquire("s", wait=0, permits=2)
        with pytest.raises(LockHeld):
            il.acquire("s", wait=0)
        permit.release()
        il.acquire("s", wait=0)
        with pytest.raises(LockHeld):
            il.acquire("s", wait=0, permits=2)

    def test_serve_waiters_in_order(self, il):
        held = [il.acquire("s", permits=2) for _ in range(2)]
        served = []

        def wait_for_turn(number):
            il.acquire("s", permits=2, wait=30)
            served.append(number)

        threads = []
        for number in range(2):
            threads.append(threading.Thread(target=wait_for_turn, args=(number,)))
            threads[-1].start()
            eventually(lambda n=number: il.show("s").waiting == n + 1)
        held[0].release()
        threads[0].join()
        assert served == [0]
        held[1].release()
        threads[1].join()

    def test_renew_and_expire_one_by_one(self, il):
        short = il.acquire("s", permits=2, ttl=0.2)
        long = il.acquire("s", permits=2, ttl=60)
        third = il.acquire("s", permits=2, wait=10)
        assert short.lost
        assert {h.lock_id for h in il.show("s").holders} == {long.lock_id, third.lock_id}
        long.renew(120)
        with pytest.raises(LeaseLost):
            short.renew()

    def test_the_same_lock_id_is_the_same_permit(self, il):
        first = il.acquire("s", permits=2, lock_id="mine")
        assert il.acquire("s", permits=2, lock_id="mine", wait=0).fence == first.fence
        assert len(il.show("s").holders) == 1

    def test_break_takes_all_permits(self, il):
        for _ in range(2):
            il.acquire("s", permits=2)
        assert len(il.break_("s").holders) == 2
        assert not il.show("s").held


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"scope": ""}, "scope must have 1 to 512 characters"),
        ({"scope": "x" * 513}, "scope must have 1 to 512 characters"),
        ({"scope": "a\nb"}, "control characters"),
        ({"scope": "a\x00"}, "control characters"),
        ({"scope": "x:meta"}, "must not end in ':meta'"),
        ({"scope": "\ud800"}, "valid UTF-8"),
        ({"scope": 7}, "scope must be a string"),
        ({"scope": "s", "ttl": 0}, "ttl must be from 0.05"),
        ({"scope": "s", "ttl": float("nan")}, "ttl must be from 0.05"),
        ({"scope": "s", "ttl": 10**400}, "ttl must be from 0.05"),
        ({"scope": "s", "wait": -(10**5000)}, "wait must be from 0 to .* a huge int"),
        ({"scope": "s", "ttl": "30"}, "ttl must be a number"),
        ({"scope": "s", "ttl": float("inf")}, "ttl must be from"),
        ({"scope": "s", "ttl": True}, "ttl must be a number"),
        ({"scope": "s", "wait": -1}, "wait must be from 0"),
        ({"scope": "s", "wait": "x"}, "wait must be a number"),
        ({"scope": "s", "permits": 0}, "permits must be a whole number from 1 to 1000"),
        ({"scope": "s", "permits": 1001}, "permits must be a whole number"),
        ({"scope": "s", "permits": 2.0}, "permits must be a whole number"),
        ({"scope": "s", "lock_id": ""}, "lock_id must have 1 to 512"),
        ({"scope": "s", "lock_id": "a\nb"}, "lock_id must not contain control"),
        ({"scope": "s", "execution_id": 77}, "execution_id must be a string"),
        ({"scope": "s", "label": "\x1b[1m"}, "label must not contain control"),
    ],
)
def test_bad_input_is_refused_in_one_sentence_and_changes_nothing(il, arguments, says):
    for take in (il.acquire, il.lock):
        with pytest.raises(InvalidInput, match=says) as refused:
            take(**{"wait": 0, **arguments})
        assert "\n" not in str(refused.value)
    assert il.locks() == []


@pytest.mark.parametrize(
    "scope", ["a b", "ä€🦀", "{x}", "}x{", 'quo"te', "back\\slash", "a:b:c", "*?[x]", "x" * 512]
)
def test_odd_scopes_work(il, scope):
    with il.lock(scope, lock_id='i"d\\é') as lease:
        assert il.show(scope).holders[0].lock_id == lease.lock_id
        assert [info.scope for info in il.locks()] == [scope]
        with pytest.raises(LockHeld):
            il.acquire(scope, wait=0)
    assert not il.show(scope).held
