"""What Interlock does while its Redis crashes, stalls, forgets, or refuses."""

from __future__ import annotations

import socket
import time

import pytest

from interlock import Interlock, LeaseLost, StoreUnavailable, WaitTimeout

from ..conftest import eventually, see_renewed
from ..servers import RedisServer, free_port

pytestmark = pytest.mark.timeout(40)


def one_sentence(error):
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def when_back(attempt, *args, **kwargs):
    """What the attempt answers once the store can be reached again."""

    def answer():
        try:
            return attempt(*args, **kwargs)
        except StoreUnavailable:
            return None

    return eventually(answer)


def wait_in_line(background, il, count, scope="s", ttl=30):
    """So many waiters who came one after the other; the results are their leases."""
    waiters = []
    already = il.show(scope).waiting
    for number in range(count):
        waiters.append(background(il.acquire, scope, wait=60, ttl=ttl, label=f"waiter {number}"))
        eventually(lambda n=number: il.show(scope).waiting == already + n + 1)
    return waiters


class TestRestartWithoutPersistence:
    def test_fences_grow(self, connect, own_redis):
        il = connect(own_redis.url)
        fences = []
        for _ in range(3):
            fences.append(il.acquire("s", wait=0).fence)
            own_redis.kill()
            own_redis.start()
        fences.append(il.acquire("s", wait=0).fence)
        assert fences == sorted(set(fences))

    def test_the_holder_learns_that_its_lease_is_gone(self, connect, own_redis):
        il = connect(own_redis.url)
        with pytest.raises(LeaseLost), il.lock("s", ttl=1) as lease:
            own_redis.kill()
            own_redis.start()
            eventually(lambda: lease.lost)
            with pytest.raises(LeaseLost):
                lease.check()

    def test_those_in_line_wait_on_and_are_served_one_at_a_time(self, connect, own_redis, background):
        il, other = connect(own_redis.url), connect(own_redis.url)
        first = il.acquire("s")
        waiters = wait_in_line(background, il, 3) + wait_in_line(background, other, 3)
        own_redis.kill()
        own_redis.start()
        fences = [first.fence]
        while waiters:
            served = eventually(lambda: [w for w in waiters if w.done()])
            assert len(served) == 1
            waiters.remove(served[0])
            lease = served[0].result()
            fences.append(lease.fence)
            assert [h.lock_id for h in il.show("s").holders] == [lease.lock_id]
            lease.release()
        assert fences == sorted(set(fences))

    def test_those_in_line_wait_on_however_long_it_is_down(self, connect, own_redis, background):
        il = connect(own_redis.url)
        il.acquire("s")
        (waiter,) = wait_in_line(background, il, 1)
        own_redis.kill()
        time.sleep(2)  # longer than any number of quick attempts
        own_redis.start()
        waiter.result(15).release()


class TestAway:
    def test_a_newcomer_is_told_at_once(self, connect, own_redis):
        il = connect(own_redis.url)
        il.acquire("s").release()
        own_redis.kill()
        for attempt in (il.acquire, il.show):
            with pytest.raises(StoreUnavailable) as refused:
                attempt("s")
            assert own_redis.url in one_sentence(refused)

    def test_a_wait_ends_at_its_deadline(self, connect, own_redis, background):
        il = connect(own_redis.url)
        il.acquire("s")
        waiter = background(il.acquire, "s", wait=2)
        eventually(lambda: il.show("s").waiting)
        own_redis.kill()
        with pytest.raises(StoreUnavailable) as refused:
            waiter.result(15)
        one_sentence(refused)

    def test_a_release_that_failed_can_be_repeated_once_it_is_back(self, connect, redis_server, proxy):
        il = connect(proxy.url)
        lease = il.acquire("s")
        proxy.refusing = True
        proxy.cut()
        with pytest.raises(StoreUnavailable):
            lease.release()
        proxy.heal()
        when_back(lease.release)
        assert not il.show("s").held

    def test_the_holder_learns_without_the_store_that_its_time_is_up(self, connect, own_redis):
        il = connect(own_redis.url)
        lost = []
        lease = il.acquire("s", ttl=1, renew=True, on_lost=lost.append)
        own_redis.kill()
        eventually(lambda: lost)
        with pytest.raises(LeaseLost):
            lease.check()

    def test_leaving_a_block_says_that_the_store_is_away(self, connect, own_redis):
        il = connect(own_redis.url)
        with pytest.raises(StoreUnavailable), il.lock("s"):
            own_redis.kill()


class TestStalled:
    def test_an_operation_gives_up_after_its_timeout(self, connect, own_redis):
        il = connect(own_redis.url + "?timeout=0.5")
        il.acquire("s").release()
        own_redis.pause()
        with pytest.raises(StoreUnavailable) as refused:
            il.acquire("s", wait=0)
        one_sentence(refused)

    def test_a_holder_keeps_its_lease_if_it_was_shorter_than_the_ttl(self, connect, own_redis):
        il = connect(own_redis.url + "?timeout=0.5")
        with il.lock("s", ttl=6) as lease:
            own_redis.pause()
            time.sleep(2.5)  # at least one renewal falls into it
            own_redis.resume()
            eventually(lambda: when_back(il.show, "s").holders[0].expires_in > 4.5)
            lease.check()

    def test_a_holder_learns_that_its_time_is_up_if_it_was_longer(self, connect, own_redis):
        il = connect(own_redis.url + "?timeout=0.5")
        with pytest.raises(LeaseLost), il.lock("s", ttl=1) as lease:
            own_redis.pause()
            eventually(lambda: lease.lost)
            own_redis.resume()

    def test_those_in_line_are_served_in_order_afterwards(self, connect, own_redis, background):
        il = connect(own_redis.url + "?timeout=0.5")
        holder = il.acquire("s", ttl=60)
        waiters = wait_in_line(background, il, 3)
        own_redis.pause()
        time.sleep(1.5)
        own_redis.resume()
        eventually(lambda: when_back(il.show, "s").waiting == 3)
        holder.release()
        for number, waiter in enumerate(waiters):
            lease = waiter.result(15)
            assert not any(w.done() for w in waiters[number + 1 :])
            lease.release()


class TestForgets:
    def test_after_flushall_the_next_in_line_is_served_and_the_holder_told(
        self, connect, own_redis, background
    ):
        il = connect(own_redis.url)
        lost = []
        holder = il.acquire("s", ttl=3, renew=True, on_lost=lambda lease: lost.append(lease.lock_id))
        (waiter,) = wait_in_line(background, il, 1)
        with own_redis.client() as foreign:
            foreign.flushall()
        lease = waiter.result(15)
        assert lease.fence > holder.fence
        eventually(lambda: lost == [holder.lock_id])

    def test_after_flushall_everybody_takes_his_old_place_in_line(self, connect, own_redis, background):
        il, other = connect(own_redis.url), connect(own_redis.url)
        il.acquire("s")
        waiters = wait_in_line(background, il, 2) + wait_in_line(background, other, 2)
        with own_redis.client() as foreign:
            with foreign.pipeline() as at_once:
                at_once.flushall().set("n8n-lock-s", 1, px=60_000).execute()
            eventually(lambda: il.show("s").waiting == 4)
            foreign.delete("n8n-lock-s")
        for number, waiter in enumerate(waiters):
            lease = waiter.result(15)
            assert not any(w.done() for w in waiters[number + 1 :])
            lease.release()

    def test_script_flush_is_not_noticed(self, connect, own_redis, background):
        il = connect(own_redis.url)
        with own_redis.client() as foreign:
            with il.lock("s", ttl=5) as lease, il.lock("t", ttl=5) as other:
                (waiter,) = wait_in_line(background, il, 1)
                foreign.script_flush()
                see_renewed(il, "s", "t")
                lease.check()
                other.check()
                foreign.script_flush()
            next_one = waiter.result(15)
            foreign.script_flush()
            assert next_one.release().idempotent is False
            foreign.script_flush()
            assert not il.show("s").held


class TestHangsUp:
    KINDS = pytest.mark.parametrize("kind", ["normal", "pubsub"])

    @KINDS
    def test_those_in_line_are_served_in_order(self, connect, own_redis, background, kind):
        il = connect(own_redis.url)
        holder = il.acquire("s", ttl=60)
        waiters = wait_in_line(background, il, 3)
        with own_redis.client() as foreign:
            foreign.client_kill_filter(_type=kind, skipme=True)
            eventually(lambda: foreign.pubsub_channels("*wake*"))
            holder.release()
            for number, waiter in enumerate(waiters):
                lease = waiter.result(15)
                behind = waiters[number + 1 :]
                assert not any(w.done() for w in behind)
                foreign.client_kill_filter(_type=kind, skipme=True)
                eventually(lambda b=behind: not b or foreign.pubsub_channels("*wake*"))
                lease.release()

    @KINDS
    def test_a_hand_over_that_nobody_hears_is_made_up_for(self, connect, own_redis, background, kind):
        il = connect(own_redis.url)
        holder = il.acquire("s", ttl=60)
        waiters = wait_in_line(background, il, 3)
        with own_redis.client() as foreign:
            foreign.client_kill_filter(_type=kind, skipme=True)
            holder.release()
            while waiters:
                served = eventually(lambda: [w for w in waiters if w.done()])
                assert len(served) == 1
                waiters.remove(served[0])
                foreign.client_kill_filter(_type=kind, skipme=True)
                served[0].result().release()
        eventually(lambda: not il.show("s").held)

    def test_a_holder_keeps_its_lease(self, connect, own_redis):
        il = connect(own_redis.url)
        with own_redis.client() as foreign, il.lock("s", ttl=4) as lease:
            for _ in range(20):
                foreign.client_kill_filter(_type="normal", skipme=True)
                time.sleep(0.1)
            see_renewed(il, "s")
            lease.check()
            assert il.show("s").holders[0].lock_id == lease.lock_id

    def test_releasing_over_a_dead_connection_is_a_plain_success(self, connect, own_redis):
        il = connect(own_redis.url)
        with own_redis.client() as foreign:
            lease = il.acquire("s")
            foreign.client_kill_filter(_type="normal", skipme=True)
            assert lease.release().idempotent is False
        assert not il.show("s").held


class TestIsFull:
    def test_a_newcomer_is_told_why(self, connect, own_redis):
        il = connect(own_redis.url)
        with own_redis.client() as foreign:
            foreign.config_set("maxclients", 1)
            with pytest.raises(StoreUnavailable, match="max number of clients") as refused:
                il.acquire("s")
            one_sentence(refused)
            foreign.config_set("maxclients", 1000)
        when_back(il.acquire, "s").release()

    def test_whoever_waits_waits_on(self, connect, own_redis, background):
        il = connect(own_redis.url)
        with own_redis.client() as foreign:
            foreign.set("n8n-lock-s", 1, px=60_000)
            (waiter,) = wait_in_line(background, il, 1)
            foreign.config_set("maxclients", 1)
            foreign.client_kill_filter(_type="pubsub", skipme=True)
            foreign.client_kill_filter(_type="normal", skipme=True)
            foreign.delete("n8n-lock-s")
            time.sleep(1)  # it has tried by now, in vain
            assert not waiter.done()
            foreign.config_set("maxclients", 1000)
            waiter.result(15).release()


class TestRefuses:
    @pytest.fixture
    def guarded(self):
        server = RedisServer(requirepass="right-secret")
        yield server
        server.close()

    def test_a_wrong_password_is_named_but_not_shown(self, connect, guarded):
        il = connect(f"redis://:wrong-secret@127.0.0.1:{guarded.port}/0")
        with pytest.raises(StoreUnavailable, match="refuses the user name or password") as refused:
            il.acquire("s")
        assert "secret" not in one_sentence(refused)

    def test_an_unknown_user_is_refused_alike(self, connect, guarded):
        il = connect(f"redis://somebody:wrong-secret@127.0.0.1:{guarded.port}/0")
        with pytest.raises(StoreUnavailable, match="refuses the user name or password") as refused:
            il.acquire("s")
        assert "secret" not in one_sentence(refused)

    def test_a_missing_password_is_named(self, connect, guarded):
        with pytest.raises(StoreUnavailable, match="asks for a password") as refused:
            connect(guarded.url).acquire("s")
        one_sentence(refused)

    def test_the_right_password_works(self, connect, guarded):
        connect(f"redis://:right-secret@127.0.0.1:{guarded.port}/0").acquire("s", wait=0).release()

    def test_a_password_may_hold_any_character(self, connect, own_redis):
        with own_redis.client() as foreign:
            foreign.execute_command("ACL", "SETUSER", "ann", "on", ">p@ss/w:rd", "~*", "&*", "+@all")
        url = f"redis://ann:p%40ss%2Fw%3Ard@127.0.0.1:{own_redis.port}/0"
        connect(url).acquire("s", wait=0).release()

    def test_a_port_where_nobody_listens(self, connect):
        port = free_port()
        with pytest.raises(StoreUnavailable, match=str(port)) as refused:
            connect(f"redis://:a-secret@127.0.0.1:{port}/0").acquire("s")
        assert "secret" not in one_sentence(refused)

    def test_a_host_that_does_not_exist(self, connect):
        with pytest.raises(StoreUnavailable, match=r"nowhere\.invalid") as refused:
            connect("redis://nowhere.invalid:6379/0").acquire("s")
        one_sentence(refused)

    def test_something_else_than_a_redis(self, connect):
        with socket.create_server(("127.0.0.1", 0)) as door:
            url = f"redis://127.0.0.1:{door.getsockname()[1]}/0?timeout=0.5"
            with pytest.raises(StoreUnavailable) as refused:
                connect(url).acquire("s")
            one_sentence(refused)

    def test_a_database_that_does_not_exist(self, connect, redis_server):
        with pytest.raises(StoreUnavailable) as refused:
            connect(f"redis://127.0.0.1:{redis_server.port}/99").acquire("s")
        one_sentence(refused)

    @pytest.mark.parametrize(
        "rights",
        [
            ("~*", "&*", "+@all", "-@scripting"),
            ("~other:*", "&*", "+@all"),
            ("~*", "&*", "+@all", "-set"),
        ],
        ids=["no scripts", "no keys", "no writes"],
    )
    def test_a_user_without_the_rights_is_told_so(self, connect, own_redis, rights):
        with own_redis.client() as foreign:
            foreign.execute_command("ACL", "SETUSER", "ann", "on", ">a-secret", *rights)
        il = connect(f"redis://ann:a-secret@127.0.0.1:{own_redis.port}/0")
        with pytest.raises(StoreUnavailable, match="does not permit") as refused:
            il.acquire("s")
        assert "secret" not in one_sentence(refused)

    def test_a_user_without_channels_may_lock_but_not_wait(self, connect, own_redis):
        with own_redis.client() as foreign:
            foreign.execute_command(
                "ACL", "SETUSER", "ann", "on", ">a-secret", "~*", "resetchannels", "+@all"
            )
        il = connect(f"redis://ann:a-secret@127.0.0.1:{own_redis.port}/0")
        with il.lock("s", wait=0) as lease:
            with pytest.raises(StoreUnavailable, match="does not permit") as refused:
                il.acquire("s", wait=10)
            one_sentence(refused)
            info = il.show("s")
            assert (info.holders[0].lock_id, info.waiting) == (lease.lock_id, 0)

    def test_a_user_without_client_tracking_waits_all_the_same(self, connect, redis_server, background):
        with redis_server.client() as foreign:
            foreign.execute_command(
                "ACL", "SETUSER", "ann", "on", ">a-secret", "~*", "&*", "+@all", "-client|tracking"
            )
            il = connect(f"redis://ann:a-secret@127.0.0.1:{redis_server.port}/0")
            foreign.set("n8n-lock-s", 1, px=60_000)
            (waiter,) = wait_in_line(background, il, 1)
            foreign.delete("n8n-lock-s")
            waiter.result(15).release()
            foreign.execute_command("ACL", "DELUSER", "ann")

    def test_a_full_memory_is_named_and_what_is_held_can_be_released(self, connect, own_redis):
        il = connect(own_redis.url)
        lease = il.acquire("s")
        with own_redis.client() as foreign:
            foreign.config_set("maxmemory", 1)
            with pytest.raises(StoreUnavailable, match="out of memory") as refused:
                il.acquire("t")
            one_sentence(refused)
            lease.release()
            foreign.config_set("maxmemory", 0)
        assert not il.show("s").held


def test_a_wait_in_which_the_store_never_answered_says_so():
    server = RedisServer()
    try:
        with Interlock(server.url + "?timeout=0.5") as il:
            holder = il.acquire("s", ttl=60)
            with pytest.raises(WaitTimeout):
                il.acquire("s", wait=0.05)  # from now on it listens
            holder.release()
            server.pause()
            with pytest.raises(StoreUnavailable, match="Lost the Redis") as raised:
                il.acquire("s", wait=0.3)
            assert raised.value.maybe_done
            server.resume()
    finally:
        server.close()
