"""Progress for others to read, and jobs of which one runs at a time; on every store, sync and async."""

from __future__ import annotations

import asyncio
import threading

import pytest

from interlock import AsyncInterlock, InvalidInput, LeaseLost, LockHeld, NotOwner

from ..conftest import collecting, eventually
from ..servers import redis_binaries


class TestSetGetUnset:
    def test_what_was_set_is_what_is_read(self, il, connect, store):
        assert il.status.get("import").output is None
        done = il.status.set("import", "working")
        assert (done.ok, done.key) == (True, "import")
        seen = connect(store.url).status.get("import")
        assert (seen.key, seen.output) == ("import", "working")
        assert (seen.percent, seen.message) == (None, None)
        assert 590 < seen.expires_in <= 600
        assert il.status.unset("import").ok is True
        assert il.status.get("import").output is None

    def test_it_may_say_how_far_it_is_and_who_says_so(self, il):
        il.status.set(
            "import",
            "loading",
            percent=40,
            message="page 4\nof 10 - „ok“",
            execution_id="77",
            workflow_id="w1",
            workflow_name="Import",
            label="nightly",
        )
        seen = il.status.get("import")
        assert (seen.output, seen.percent, seen.message) == ("loading", 40, "page 4\nof 10 - „ok“")
        assert seen.at.endswith("Z")
        who = seen.holder
        assert (who.execution_id, who.workflow_id, who.workflow_name) == ("77", "w1", "Import")
        assert who.label == "nightly"
        assert who.pid
        assert seen.describe() == "loading, 40 %: page 4\nof 10 - „ok“"

    def test_setting_again_replaces_all_of_it(self, il):
        il.status.set("import", "loading", percent=40, message="page 4")
        il.status.set("import", "finishing", timeout=60)
        seen = il.status.get("import")
        assert (seen.output, seen.percent, seen.message) == ("finishing", None, None)
        assert seen.expires_in <= 60

    def test_it_lapses_with_its_timeout(self, il):
        il.status.set("import", "working", timeout=0.1)
        eventually(lambda: il.status.get("import").output is None)

    def test_unsetting_what_is_not_there_is_fine(self, il):
        assert il.status.unset("import").ok is True

    def test_values_may_be_empty_long_and_of_any_script(self, il):
        for value in ("", "x" * 4096, "läuft 進行中 🚀", 'a "quoted" \\ value', "{}"):
            il.status.set("import", value, message=value)
            seen = il.status.get("import")
            assert (seen.output, seen.message) == (value, value)

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"key": ""}, "key must have 1 to 512"),
            ({"key": "a:meta"}, "key must not end in ':meta'"),
            ({"key": "a\x00"}, "control characters"),
            ({"value": 7}, "value must be a string"),
            ({"value": None}, "value must be a string"),
            ({"value": "x" * 4097}, "value must have at most 4096"),
            ({"value": "\ud800"}, "value must be valid UTF-8"),
            ({"timeout": 0}, "timeout must be from 0.05"),
            ({"timeout": "600"}, "timeout must be a number"),
            ({"percent": 101}, "percent must be a number from 0 to 100"),
            ({"percent": -1}, "percent must be a number from 0 to 100"),
            ({"percent": float("nan")}, "percent must be a number from 0 to 100"),
            ({"percent": True}, "percent must be a number"),
            ({"message": 5}, "message must be a string"),
            ({"execution_id": ""}, "execution_id must have 1 to 512"),
            ({"lock_id": ""}, "lock_id must have 1 to 512"),
        ],
    )
    def test_bad_input_is_refused_and_changes_nothing(self, il, arguments, says):
        il.status.set("import", "before")
        options = {"key": "import", "value": "after"} | arguments
        with pytest.raises(InvalidInput, match=says):
            il.status.set(options.pop("key"), options.pop("value"), **options)
        assert il.status.get("import").output == "before"


class TestProgressOfALease:
    def test_stands_while_the_lease_is_held_and_is_gone_with_it(self, il):
        with il.lock("excel-42", execution_id="77") as lease:
            lease.progress("loading", percent=40, message="page 4 of 10")
            seen = il.status.get("excel-42")
            assert (seen.output, seen.percent, seen.message) == ("loading", 40, "page 4 of 10")
            assert (seen.holder.lock_id, seen.holder.execution_id) == (lease.lock_id, "77")
        assert il.status.get("excel-42").output is None

    def test_a_late_writer_does_not_revive_a_finished_job(self, il):
        lease = il.acquire("s")
        lease.progress("working")
        il.release("s", lease.lock_id)  # behind its back
        with pytest.raises(LeaseLost):
            lease.progress("still working")
        assert il.status.get("s").output is None
        with pytest.raises(NotOwner, match="set the status"):
            il.status.set("s", "still working", lock_id=lease.lock_id)

    def test_whoever_lost_the_lease_does_not_overwrite_the_next_holders(self, il):
        first = il.acquire("s")
        il.break_("s")
        second = il.acquire("s", wait=0)
        second.progress("second")
        with pytest.raises(LeaseLost):
            first.progress("first")
        assert il.status.get("s").output == "second"

    def test_only_the_holder_writes_it(self, il, connect, store):
        lease = il.acquire("s", workflow_name="Import")
        lease.progress("working")
        for attempt in (lambda: il.status.set("s", "mine"), lambda: il.status.unset("s")):
            with pytest.raises(NotOwner, match="Import"):
                attempt()
        assert il.status.get("s").output == "working"
        connect(store.url).status.set("s", "by lock_id", lock_id=lease.lock_id)
        assert il.status.get("s").output == "by lock_id"

    def test_it_lasts_as_long_as_the_lease(self, il):
        lease = il.acquire("s", ttl=60)
        lease.progress("working")
        assert 50 < il.status.get("s").expires_in <= 60
        lease.renew(ttl=600)
        assert 590 < il.status.get("s").expires_in <= 600
        il.acquire("s", lock_id=lease.lock_id, ttl=120)
        assert 110 < il.status.get("s").expires_in <= 120

    def test_it_ends_with_a_lease_that_runs_out(self, il):
        il.acquire("s", ttl=0.2).progress("working")
        eventually(lambda: il.status.get("s").output is None)

    def test_it_ends_when_the_lease_is_broken(self, il):
        il.acquire("s").progress("working")
        il.break_("s")
        assert il.status.get("s").output is None

    def test_each_holder_of_a_permit_may_write_and_the_last_word_is_its_own(self, il):
        one = il.acquire("s", permits=2)
        two = il.acquire("s", permits=2)
        one.progress("one")
        two.progress("two")
        one.release()
        assert il.status.get("s").output == "two", "it is not the one's who left"
        two.release()
        assert il.status.get("s").output is None

    def test_a_released_lease_says_nothing_any_more(self, il):
        lease = il.acquire("s")
        lease.release()
        with pytest.raises(LeaseLost, match="it was released"):
            lease.progress("working")

    def test_bad_input_is_refused(self, il):
        lease = il.acquire("s")
        with pytest.raises(InvalidInput, match="percent"):
            lease.progress("working", percent=200)
        assert il.status.get("s").output is None


class TestBegin:
    def test_the_first_has_the_job_and_the_others_are_told_how_far_it_is(self, il, connect, store):
        job = il.status.begin("import", workflow_name="Import")
        assert il.status.get("import").output == "working"
        job.progress("loading", percent=40)
        with pytest.raises(LockHeld, match="Already Executing: 'import' is at loading, 40 %") as refused:
            connect(store.url).status.begin("import")
        assert (refused.value.status.output, refused.value.status.percent) == ("loading", 40)
        assert refused.value.holder.workflow_name == "Import"
        job.release()
        assert il.status.get("import").output is None
        il.status.begin("import", "loading").release()

    def test_one_of_many_at_the_same_moment_begins(self, il):
        begun, refused = [], []

        def begin():
            try:
                begun.append(il.status.begin("import"))
            except LockHeld as held:
                refused.append(held)

        threads = [threading.Thread(target=begin) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(begun), len(refused)) == (1, 11)

    def test_it_ends_with_its_timeout(self, il):
        il.status.begin("import", timeout=0.2)
        eventually(lambda: not il.show("import").held)
        eventually(lambda: il.status.get("import").output is None)
        il.status.begin("import").release()

    def test_in_a_block_it_is_over_at_the_end(self, il):
        with il.status.begin("import", timeout=5) as job:
            job.progress("loading")
            assert il.show("import").held
        assert not il.show("import").held
        assert il.status.get("import").output is None

    def test_unsetting_by_its_lock_id_ends_it(self, il):
        job = il.status.begin("import")
        with pytest.raises(NotOwner):
            il.status.unset("import")
        il.status.unset("import", lock_id=job.lock_id)
        assert not il.show("import").held

    def test_a_status_without_a_job_keeps_others_from_beginning(self, il):
        il.status.set("import", "working")
        with pytest.raises(LockHeld, match="Already Executing: 'import' is at working"):
            il.status.begin("import")
        il.status.unset("import")
        il.status.begin("import").release()

    def test_a_plain_lock_and_a_job_exclude_each_other(self, il):
        with il.lock("import"), pytest.raises(LockHeld, match="'import' is held by"):
            il.status.begin("import")
        with il.status.begin("import"), pytest.raises(LockHeld):
            il.acquire("import", wait=0)

    def test_those_in_line_come_first(self, il, connect, store):
        holder = il.acquire("import")
        got = []
        other = connect(store.url)
        thread = threading.Thread(target=lambda: got.append(other.acquire("import", wait=30)))
        thread.start()
        eventually(lambda: il.show("import").waiting)
        holder.release()
        with pytest.raises(LockHeld):
            il.status.begin("import")
        thread.join()
        got[0].release()

    def test_beginning_again_with_the_same_lock_id_is_the_same_job(self, il):
        first = il.status.begin("import", lock_id="mine", timeout=30)
        again = il.status.begin("import", lock_id="mine", timeout=60)
        assert again.fence == first.fence
        assert 50 < il.show("import").holders[0].expires_in <= 60
        assert 50 < il.status.get("import").expires_in <= 60

    def test_an_async_block_renews_and_ends_it(self, store):
        async def main():
            async with AsyncInterlock(store.url) as il:
                async with il.status.begin("import", "loading", timeout=0.3, percent=5) as job:
                    await asyncio.sleep(0.7)
                    job.check()
                    seen = await il.status.get("import")
                    assert (seen.output, seen.percent) == ("loading", 5)
                assert (await il.status.get("import")).output is None

        asyncio.run(main())


class TestWatch:
    def test_the_value_comes_first_and_then_every_change(self, il, connect, store):
        other = connect(store.url)
        other.status.set("import", "working")
        with il.status.watch("import") as watching:
            assert next(watching).output == "working"
            other.status.set("import", "loading", percent=40)
            seen = next(watching)
            assert (seen.output, seen.percent) == ("loading", 40)
            other.status.set("import", "loading", percent=50)
            assert next(watching).percent == 50
            other.status.unset("import")
            assert next(watching).output is None

    def test_a_job_can_be_followed_from_before_its_beginning_to_its_end(self, il, connect, store):
        other = connect(store.url)
        with il.status.watch("import") as watching:
            assert next(watching).output is None
            with other.status.begin("import") as job:
                assert next(watching).output == "working"
                job.progress("loading")
                assert next(watching).output == "loading"
            assert next(watching).output is None

    def test_it_tells_when_a_status_lapses(self, il):
        il.status.set("import", "working", timeout=0.3)
        with il.status.watch("import") as watching:
            assert next(watching).output == "working"
            assert next(watching).output is None

    def test_whoever_falls_behind_gets_the_newest(self, il):
        with il.status.watch("import") as watching:
            next(watching)
            for percent in range(100):
                il.status.set("import", "loading", percent=percent)
            assert next(watching).percent == 99

    def test_a_change_back_and_forth_is_no_change_of_another_key(self, il):
        with il.status.watch("import") as watching:
            next(watching)
            il.status.set("export", "working")
            il.status.set("import", "working")
            assert next(watching).output == "working"

    def test_several_watch_at_once(self, il, connect, store):
        other = connect(store.url)
        with (
            collecting(il.status.watch("import")) as one,
            collecting(il.status.watch("import")) as two,
            collecting(other.status.watch("import")) as three,
        ):
            eventually(lambda: one and two and three)
            il.status.set("import", "working")
            for seen in (one, two, three):
                eventually(lambda seen=seen: seen[-1].output == "working")

    def test_closing_it_ends_it_also_for_whoever_sleeps_in_it(self, il):
        with collecting(il.status.watch("import")) as seen:
            eventually(lambda: seen)

    def test_closing_the_client_ends_it(self, connect, store):
        il = connect(store.url)
        watching = il.status.watch("import")
        seen = []
        thread = threading.Thread(target=lambda: seen.extend(watching))
        thread.start()
        eventually(lambda: il.show("import") and thread.is_alive())
        il.close() if hasattr(il, "locks") and not hasattr(il, "loop") else il.run(il.client.close())
        thread.join(10)
        assert not thread.is_alive()

    def test_waiting_for_a_lock_and_watching_share_a_client(self, il, connect, store):
        other = connect(store.url)
        holder = other.acquire("s")
        with collecting(il.status.watch("import")) as seen:
            eventually(lambda: seen)
            got = []
            thread = threading.Thread(target=lambda: got.append(il.acquire("s", wait=30)))
            thread.start()
            eventually(lambda: il.show("s").waiting)
            other.status.set("import", "working")
            eventually(lambda: seen[-1].output == "working")
            holder.release()
            thread.join(10)
            assert got

    def test_bad_input_is_refused(self, il):
        with pytest.raises(InvalidInput, match="key must"):
            il.status.watch("")


@pytest.mark.parametrize("version", list(redis_binaries()))
class TestBesideN8n:
    """The status templates, command by command as n8n's Redis node sends them."""

    def test_each_reads_what_the_other_wrote(self, clean_redis, connect, version):
        server = clean_redis(version)
        il = connect(server.url)
        with server.client() as n8n:
            il.status.set("import", "loading", percent=40)
            assert n8n.type("process_status_import") == "string"
            assert n8n.get("process_status_import") == "loading"
            assert 590 < n8n.ttl("process_status_import") <= 600
            n8n.set("process_status_import", "finishing")
            n8n.expire("process_status_import", 600)
            seen = il.status.get("import")
            assert (seen.output, seen.percent, seen.holder) == ("finishing", None, None)
            n8n.delete("process_status_import")
            assert il.status.get("import").output is None

    def test_a_watcher_sees_what_n8n_writes(self, clean_redis, connect, version):
        server = clean_redis(version)
        with server.client() as n8n, connect(server.url).status.watch("import") as watching:
            assert next(watching).output is None
            for value in ("working", "loading"):
                n8n.set("process_status_import", value)
                assert next(watching).output == value
            n8n.delete("process_status_import")
            assert next(watching).output is None

    def test_a_job_of_n8ns_keeps_ours_from_beginning_and_the_other_way_round(
        self, clean_redis, connect, version
    ):
        server = clean_redis(version)
        il = connect(server.url)
        with server.client() as n8n:
            n8n.set("process_status_import", "working")
            n8n.expire("process_status_import", 600)
            with pytest.raises(LockHeld, match="Already Executing: 'import' is at working"):
                il.status.begin("import")
            n8n.delete("process_status_import")
            with il.status.begin("import"):
                assert n8n.get("process_status_import") == "working"
            assert n8n.get("process_status_import") is None

    def test_a_status_that_n8n_left_without_an_end_gets_one(self, clean_redis, connect, version):
        server = clean_redis(version)
        il = connect(server.url)
        with server.client() as n8n:
            n8n.set("process_status_import", "working")  # and was killed before EXPIRE
            with pytest.raises(LockHeld):
                il.status.begin("import")
            assert 0 < n8n.ttl("process_status_import") <= 600

    def test_the_status_of_a_lease_that_was_deleted_is_nobodys(self, clean_redis, connect, version):
        server = clean_redis(version)
        il = connect(server.url)
        with server.client() as n8n:
            for attempt in (
                lambda: il.status.set("s", "next"),
                lambda: il.status.unset("s"),
                lambda: il.status.begin("s", "next"),
                lambda: il.acquire("s", wait=0),
            ):
                il.acquire("s", ttl=60).progress("working")
                n8n.delete("n8n-lock-s", "n8n-lock-s:meta")
                attempt()
                assert il.status.get("s").output in (None, "next")
                il.break_("s")
                il.status.unset("s")
