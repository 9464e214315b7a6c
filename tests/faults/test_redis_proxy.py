"""What Interlock does when the network loses, delays or cuts what is said."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from interlock import AsyncInterlock, Interlock, LeaseLost, StoreUnavailable, WaitTimeout

from ..conftest import eventually, see_renewed
from .proxy import is_script, take_commands

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def direct(redis_server):
    """A client without the proxy. Its first calls have taught the server all the scripts."""
    with Interlock(redis_server.url) as il:
        lease = il.acquire("warm-up")
        lease.renew()
        lease.release()
        il.show("warm-up")
        yield il


@pytest.fixture
def il(connect, proxy, direct):
    """A client behind the proxy, with a connection that stands."""
    il = connect(proxy.url + "?timeout=1")
    il.show("warm-up")
    return il


def test_the_proxy_tells_commands_apart():
    whole = b"*2\r\n$4\r\nECHO\r\n$5\r\na\r\nb\r\r\n"
    assert take_commands(bytearray(whole)) == [(whole, [b"ECHO", b"a\r\nb\r"])]
    buffer = bytearray(whole + whole[:-1])
    assert len(take_commands(buffer)) == 1
    assert buffer == whole[:-1]
    assert is_script([b"EVALSHA"])
    assert not is_script([b"PING"])


class TestLostReplies:
    def test_of_an_acquire_gives_one_lease(self, il, direct, proxy):
        proxy.drop_reply()
        lease = il.acquire("s", ttl=60)
        (holder,) = direct.show("s").holders
        assert proxy.dropped == 1
        assert (lease.lock_id, lease.fence, lease.locked_at) == (
            holder.lock_id,
            holder.fence,
            holder.locked_at,
        )
        assert lease.release().idempotent is False
        assert not direct.show("s").held

    def test_of_an_acquire_gives_one_permit(self, il, direct, proxy):
        proxy.drop_reply()
        lease = il.acquire("s", permits=3)
        assert [h.lock_id for h in direct.show("s").holders] == [lease.lock_id]
        assert lease.count == 1

    def test_of_a_release_is_a_plain_success(self, il, direct, proxy):
        lease = il.acquire("s")
        proxy.drop_reply()
        done = lease.release()
        assert proxy.dropped == 1
        assert (done.released, done.idempotent) == (True, False)
        assert not direct.show("s").held

    def test_of_a_release_by_lock_id_is_a_plain_success(self, il, proxy):
        lease = il.acquire("s")
        proxy.drop_reply()
        assert il.release("s", lease.lock_id).released is True

    def test_of_a_release_does_not_make_a_block_end_with_an_error(self, il, proxy):
        with il.lock("s"):
            proxy.drop_reply()
        assert proxy.dropped == 1

    def test_of_a_release_does_no_harm_to_who_came_next(self, il, direct, proxy, background):
        with il.lock("s"):
            waiter = background(direct.acquire, "s", wait=30, ttl=60)
            eventually(lambda: direct.show("s").waiting)
            proxy.drop_reply()
        assert proxy.dropped == 1
        lease = waiter.result(15)
        assert direct.show("s").holders[0].lock_id == lease.lock_id

    def test_of_a_renewal_prolongs_all_the_same(self, il, direct, proxy):
        lease = il.acquire("s", ttl=10)
        proxy.drop_reply()
        lease.renew(60)
        assert direct.show("s").holders[0].expires_in > 50
        lease.check()

    def test_of_renewals_in_the_background_lose_no_lease(self, il, direct, proxy):
        with il.lock("s", ttl=5) as one, il.lock("t", ttl=5) as two:
            for _ in range(3):
                proxy.drop_reply()
                eventually(lambda: proxy.dropped)
            see_renewed(direct, "s", "t")
            one.check()
            two.check()
            assert {i.scope for i in direct.locks()} == {"s", "t"}

    @pytest.mark.parametrize("nth", range(1, 6))
    def test_on_the_way_into_the_queue_and_out_of_it(self, il, direct, proxy, background, nth):
        holder = direct.acquire("s", ttl=60)
        proxy.drop_reply(nth)
        waiter = background(il.acquire, "s", wait=30)
        eventually(lambda: direct.show("s").waiting == 1)
        behind = background(direct.acquire, "s", wait=30)
        eventually(lambda: direct.show("s").waiting == 2)
        with listening(direct) as clients:
            eventually(lambda: len(clients()) == 2)
        holder.release()
        lease = waiter.result(15)
        assert [h.lock_id for h in direct.show("s").holders] == [lease.lock_id]
        assert not behind.done()
        lease.release()
        behind.result(15).release()

    def test_of_every_attempt_to_acquire_leave_nothing_behind(self, il, direct, proxy):
        proxy.drop_reply(times=3)
        with pytest.raises(StoreUnavailable):
            il.acquire("s")
        assert proxy.dropped == 3
        assert not direct.show("s").held

    def test_of_every_attempt_are_healed_by_the_same_lock_id(self, il, direct, proxy):
        proxy.drop_reply(times=100)
        with pytest.raises(StoreUnavailable):
            il.acquire("s", lock_id="mine")
        proxy.drop_reply(times=0)
        lease = eventually(lambda: _or_none(il.acquire, "s", lock_id="mine", wait=0))
        assert [h.lock_id for h in direct.show("s").holders] == ["mine"]
        assert direct.show("s").holders[0].fence == lease.fence

    def test_of_every_attempt_to_release_are_healed_by_another(self, il, direct, proxy):
        lease = il.acquire("s")
        proxy.drop_reply(times=100)
        with pytest.raises(StoreUnavailable):
            lease.release()
        proxy.drop_reply(times=0)
        assert eventually(lambda: _or_none(lease.release)).released is True
        assert not direct.show("s").held


def _or_none(attempt, *args, **kwargs):
    try:
        return attempt(*args, **kwargs)
    except StoreUnavailable:
        return None


class TestCuts:
    def test_between_two_operations_are_not_noticed(self, il, proxy):
        for number in range(10):
            proxy.cut()
            lease = il.acquire("s", wait=0)
            proxy.cut()
            lease.renew()
            proxy.cut()
            assert lease.release().idempotent is False, number

    def test_while_waiting_cost_no_place(self, il, direct, proxy, background):
        holder = direct.acquire("s", ttl=60)
        waiter = background(il.acquire, "s", wait=30)
        eventually(lambda: direct.show("s").waiting == 1)
        behind = background(direct.acquire, "s", wait=30)
        eventually(lambda: direct.show("s").waiting == 2)
        with listening(direct) as clients:
            for _ in range(5):
                before = clients()
                proxy.cut()
                eventually(lambda before=before: len(clients() - before) == 1 and len(clients()) == 2)
        holder.release()
        lease = waiter.result(15)
        assert not behind.done()
        lease.release()
        behind.result(15).release()

    def test_that_go_on_for_longer_than_the_window_cost_the_place_but_not_the_turn(
        self, connect, direct, proxy, redis_server, background
    ):
        il = connect(proxy.url + "?timeout=1&liveness=1")
        near = connect(redis_server.url + "?liveness=1")
        holder = near.acquire("s", ttl=60)
        waiter = background(il.acquire, "s", wait=60)
        eventually(lambda: near.show("s").waiting == 1)
        behind = background(near.acquire, "s", wait=60)
        eventually(lambda: near.show("s").waiting == 2)
        proxy.refusing = True
        proxy.cut()
        holder.release()
        lease = behind.result(15)
        proxy.heal()
        lease.release()
        waiter.result(15).release()


@contextlib.contextmanager
def listening(direct):
    """The server's ids of the connections over which somebody listens."""
    import redis

    with redis.Redis.from_url(direct.url, decode_responses=True) as foreign:
        yield lambda: {client["id"] for client in foreign.client_list(_type="pubsub")}


class TestDelays:
    def test_make_nothing_fail(self, il, direct, proxy, background):
        proxy.delay = 0.1
        first = il.acquire("s")
        waiter = background(il.acquire, "s", wait=30)
        eventually(lambda: direct.show("s").waiting)
        first.release()
        assert waiter.result(30).release().idempotent is False

    def test_never_make_a_holder_believe_in_a_lease_that_has_ended(self, il, direct, proxy):
        proxy.delay = 0.2
        lease = il.acquire("s", ttl=1)
        while not lease.lost:
            (holder,) = direct.show("s").holders or (None,)
            # Asked between two looks at the clock: what the store says was true at some moment in between.
            assert lease.lost or holder is not None

    def test_beyond_the_timeout_are_an_error_that_leaves_a_lease_for_its_ttl_at_most(self, il, direct, proxy):
        proxy.delay = 1.5
        with pytest.raises(StoreUnavailable) as refused:
            il.acquire("s", ttl=2)
        assert "\n" not in str(refused.value)
        proxy.delay = 0.0
        eventually(lambda: not direct.show("s").held)


class TestPartitions:
    def test_shorter_than_the_ttl_cost_no_lease(self, il, direct, proxy):
        with il.lock("s", ttl=6) as lease:
            expires = direct.show("s").holders[0].expires_in
            proxy.partition()
            eventually(lambda: direct.show("s").holders[0].expires_in < expires - 3)
            proxy.heal()
            eventually(lambda: direct.show("s").holders[0].expires_in > expires - 1.5)
            lease.check()

    def test_longer_than_the_ttl_are_known_to_the_holder_before_another_gets_the_scope(
        self, il, direct, proxy
    ):
        lease = il.acquire("s", ttl=1, renew=True)
        proxy.partition()
        successor = direct.acquire("s", wait=30)
        assert lease.lost
        with pytest.raises(LeaseLost):
            lease.check()
        proxy.heal()
        eventually(lambda: direct.show("s").holders)
        assert direct.show("s").holders[0].lock_id == successor.lock_id

    def test_of_a_waiter_leave_the_scope_to_the_others(
        self, connect, direct, proxy, redis_server, background
    ):
        il = connect(proxy.url + "?timeout=1&liveness=1")
        near = connect(redis_server.url + "?liveness=1")
        holder = near.acquire("s", ttl=60)
        waiter = background(il.acquire, "s", wait=60)
        eventually(lambda: near.show("s").waiting == 1)
        proxy.partition()
        holder.release()
        lease = near.acquire("s", wait=15)
        proxy.heal()
        lease.release()
        waiter.result(30).release()

    def test_end_a_wait_at_its_deadline(self, il, direct, proxy, background):
        direct.acquire("s", ttl=60)
        waiter = background(il.acquire, "s", wait=2)
        eventually(lambda: direct.show("s").waiting == 1)
        proxy.partition()
        with pytest.raises((StoreUnavailable, WaitTimeout)):
            waiter.result(20)


class TestCancelledTasks:
    def test_leave_no_lease_although_the_reply_was_under_way(self, proxy, direct):
        async def main():
            async with AsyncInterlock(proxy.url) as il:
                await il.show("s")
                proxy.delay = 0.2
                task = asyncio.create_task(il.acquire("s"))
                await asyncio.sleep(0.3)  # the request has arrived, its answer has not
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert not direct.show("s").held

        asyncio.run(main())

    def test_leave_no_place_although_their_last_look_is_late(self, proxy, direct):
        """A look travels over another connection than the withdrawal, and may arrive after it."""

        async def main():
            async with AsyncInterlock(proxy.url) as il:
                direct.acquire("s", ttl=60)
                proxy.listening_delay = 0.3
                task = asyncio.create_task(il.acquire("s"))
                await asyncio.to_thread(eventually, lambda: direct.show("s").waiting)
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await asyncio.sleep(0.6)  # what was late has arrived
                assert direct.show("s").waiting == 0

        asyncio.run(main())

    def test_leave_no_lease_although_their_last_look_is_late(self, proxy, direct):
        async def main():
            async with AsyncInterlock(proxy.url) as il:
                holder = direct.acquire("s", ttl=60)
                proxy.listening_delay = 0.3
                task = asyncio.create_task(il.acquire("s"))
                await asyncio.to_thread(eventually, lambda: direct.show("s").waiting)
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                holder.release()
                await asyncio.sleep(0.6)  # what was late has arrived
                assert not direct.show("s").held

        asyncio.run(main())


def test_a_server_that_goes_on_answering_is_not_given_up_however_much_it_has_to_do(proxy):
    async def main():
        async with AsyncInterlock(proxy.url + "?timeout=0.6") as il:
            await il.once("warm")
            proxy.delay = 0.05  # for each command, one after the other
            answers = await asyncio.gather(*(il.once(f"k-{number}") for number in range(30)))
            assert answers == [True] * 30

    asyncio.run(main())
