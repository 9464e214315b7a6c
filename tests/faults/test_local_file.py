"""What can go wrong on one machine: killed processes, reboots, other users, full disks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import stat
import time

import pytest

from interlock import AsyncInterlock, Interlock, LeaseLost, LockHeld, StoreUnavailable

from ..conftest import eventually
from ..servers import LocalFile

HOLD = """
    import sys, time
    from interlock import Interlock
    with Interlock(sys.argv[1]).lock("s", ttl=3600, label="holder"):
        print("held")
        while True:  # a signal just before a sleep ends only the next one
            time.sleep(0.05)
"""

WAIT = """
    import sys
    from interlock import Interlock
    il = Interlock(sys.argv[1])
    print("waiting")
    with il.lock("s", ttl=3600):
        print("held")
        sys.stdin.read()
"""

AS_NOBODY = """
    import os, sys
    import interlock.stores.sqlite.threads  # while we still may read it
    os.setgid(65534); os.setuid(65534)
    from interlock import Interlock, StoreUnavailable
    try:
        Interlock(sys.argv[1]).acquire("s", wait=0)
    except StoreUnavailable as error:
        print(error)
"""


@pytest.fixture
def store(tmp_path):
    return LocalFile(tmp_path)


def test_a_killed_holder_is_noticed_at_once_by_a_newcomer(store, run_python):
    holder = run_python(HOLD, store.url)
    holder.stdout.readline()
    il = Interlock(store.url)
    with pytest.raises(LockHeld, match="holder"):
        il.acquire("s", wait=0)
    holder.kill()
    holder.wait()
    il.acquire("s", wait=0)


def test_a_killed_holder_is_noticed_at_once_by_a_waiter(connect, store, run_python):
    holder = run_python(HOLD, store.url)
    holder.stdout.readline()
    il = connect(store.url)
    waiter = run_python(WAIT, store.url)
    waiter.stdout.readline()
    eventually(lambda: il.show("s").waiting)
    holder.kill()
    assert waiter.stdout.readline() == "held\n"


def test_the_second_waiter_notices_when_the_first_is_killed_while_it_holds(connect, store, run_python):
    il = connect(store.url)
    lease = il.acquire("s", ttl=3600)
    waiters = []
    for number in range(2):
        waiters.append(run_python(WAIT, store.url))
        waiters[-1].stdout.readline()
        eventually(lambda n=number: il.show("s").waiting == n + 1)
    lease.release()
    assert waiters[0].stdout.readline() == "held\n"
    waiters[0].kill()
    assert waiters[1].stdout.readline() == "held\n"


def test_killed_waiters_are_passed_over(connect, store, run_python):
    il = connect(store.url)
    lease = il.acquire("s", ttl=3600)
    waiters = []
    for number in range(4):
        waiters.append(run_python(WAIT, store.url))
        waiters[-1].stdout.readline()
        eventually(lambda n=number: il.show("s").waiting == n + 1)
    for waiter in waiters[:3]:
        waiter.kill()
        waiter.wait()
    lease.release()
    assert waiters[3].stdout.readline() == "held\n"


@pytest.mark.slow
def test_stopped_waiters_delay_the_next_by_one_window_together(connect, store, run_python):
    url = f"{store.url}?liveness=1"
    il = connect(url)
    lease = il.acquire("s", ttl=3600)
    waiters = []
    for number in range(4):
        waiters.append(run_python(WAIT, url))
        waiters[-1].stdout.readline()
        eventually(lambda n=number: il.show("s").waiting == n + 1)
    for waiter in waiters[:3]:
        waiter.send_signal(signal.SIGSTOP)
    lease.release()
    assert waiters[3].stdout.readline() == "held\n"


def test_a_lease_that_was_acquired_to_be_handed_around_outlives_its_process(store, run_python):
    code = """
        import sys
        from interlock import Interlock
        print(Interlock(sys.argv[1]).acquire("s", ttl=600).lock_id)
    """
    process = run_python(code, store.url)
    lock_id = process.stdout.readline().strip()
    process.wait()
    il = Interlock(store.url)
    with pytest.raises(LockHeld):
        il.acquire("s", wait=0)
    assert il.release("s", lock_id).idempotent is False


@pytest.mark.parametrize(
    "lie",
    [
        "machine.boot_id = lambda: '0-earlier-boot'",
        "machine.started = lambda pid: 1",
    ],
    ids=["reboot", "pid used again"],
)
def test_what_is_left_of_an_earlier_life_holds_nothing(store, run_python, lie):
    code = f"""
        import sys, time
        from interlock import Interlock, machine
        {lie}
        with Interlock(sys.argv[1]).lock("s", ttl=3600):
            print("held")
            time.sleep(3600)
    """
    process = run_python(code, store.url)
    process.stdout.readline()
    Interlock(store.url).acquire("s", wait=0)


def test_a_forked_child_is_not_the_holder(connect, store):
    il = connect(store.url)
    with il.lock("s") as lease:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child = Interlock(store.url)
                with child.lock("t"):  # a client of its own works
                    refused = False
                    try:
                        lease.check()
                    except LeaseLost:
                        refused = True
                    code = 0 if refused and lease.inherited else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        lease.check()
        assert il.show("s").held


def test_a_forked_child_can_use_its_parents_client_and_its_exit_releases_nothing(store):
    il = Interlock(store.url)
    with il.lock("s") as lease:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                lease.release()
                with il.lock("t"):
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert il.show("s").holders[0].lock_id == lease.lock_id


@pytest.mark.parametrize("code", [HOLD, WAIT], ids=["holding", "waiting"])
def test_ctrl_c_leaves_nothing_behind(store, run_python, code):
    il = Interlock(store.url)
    lease = il.acquire("s") if code is WAIT else None
    process = run_python(code, store.url)
    process.stdout.readline()
    if lease:
        eventually(lambda: il.show("s").waiting)
    process.send_signal(signal.SIGINT)
    process.wait()
    assert il.show("s").waiting == 0
    if lease:
        lease.release()
    assert not il.show("s").held


def test_who_died_in_line_is_not_shown(store, run_python, background):
    il = Interlock(store.url)
    lease = il.acquire("s")
    processes = []
    for number in range(3):
        processes.append(run_python(WAIT, store.url))
        eventually(lambda number=number: il.show("s").waiting == number + 1)
    behind = background(il.acquire, "s", wait=30)
    eventually(lambda: il.show("s").waiting == 4)
    for process in processes[:2]:
        process.kill()
        process.wait()
    assert [waiter.pid for waiter in il.show("s").waiters] == [processes[2].pid, os.getpid()]
    processes[2].kill()
    processes[2].wait()
    lease.release()
    behind.result(15).release()


def test_fences_grow_although_the_file_was_deleted(connect, store):
    il, other = connect(store.url), connect(store.url)
    lease = il.acquire("s")
    for path in store.file.parent.glob("interlock.db*"):
        path.unlink()
    second = other.acquire("s", wait=0)
    assert second.fence > lease.fence
    with pytest.raises(LeaseLost):
        lease.release()
    assert il.show("s").holders[0].lock_id == second.lock_id


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0o600, 0o644], ids=["unreadable", "read-only"])
def test_another_user_gets_a_clear_sentence_and_harms_nothing(tmp_path_factory, run_python, mode):
    folder = tmp_path_factory.getbasetemp() / f"shared-{mode}"
    folder.mkdir()
    for parent in [folder, *folder.parents]:
        parent.chmod(parent.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    store = LocalFile(folder)
    il = Interlock(store.url)
    lease = il.acquire("s")
    for path in folder.iterdir():
        path.chmod(mode)
    process = run_python(AS_NOBODY, store.url)
    said = process.stdout.read()
    assert "written by this user" in said
    assert said.count("\n") == 1
    assert il.show("s").holders[0].lock_id == lease.lock_id


def test_a_full_disk_is_said_plainly(store, run_python):
    code = """
        import resource, signal, sys
        from interlock import Interlock, StoreUnavailable
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        il = Interlock(sys.argv[1])
        il.acquire("first", ttl=600)
        resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, 70_000))
        try:
            for number in range(2000):
                il.acquire(f"scope-{number}", ttl=600)
        except StoreUnavailable as error:
            print(error)
    """
    process = run_python(code, store.url)
    said = process.stdout.read()
    assert "the disk is full" in said
    assert said.count("\n") == 1
    assert Interlock(store.url).show("first").held


def test_a_file_of_something_else_is_left_alone(store):
    store.file.write_bytes(b"a diary, not a database" * 100)
    before = store.file.read_bytes()
    with pytest.raises(StoreUnavailable, match="is not a file of Interlock's"):
        Interlock(store.url).acquire("s")
    assert store.file.read_bytes() == before


def test_another_programs_database_is_left_alone(store):
    with sqlite3.connect(store.file) as db:
        db.execute("CREATE TABLE diary (day, text)")
    with pytest.raises(StoreUnavailable, match="is not a file of Interlock's"):
        Interlock(store.url).acquire("s")
    with sqlite3.connect(store.file) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("diary",)]


def test_a_file_of_a_newer_version_is_left_alone(store):
    Interlock(store.url).acquire("s").release()
    with sqlite3.connect(store.file) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnavailable, match="newer version"):
        Interlock(store.url).acquire("s")


def test_a_folder_that_cannot_be_made_is_said_plainly(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="Can't create the folder"):
        Interlock(f"sqlite://{tmp_path}/file/sub/interlock.db").acquire("s")


class TestABusyFile:
    """Another program keeps the file locked while somebody gives up."""

    @staticmethod
    async def _cancel(task, busy, after):
        busy.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(after)
        task.cancel()
        await asyncio.wait([task], timeout=0.1)
        busy.execute("ROLLBACK")
        await asyncio.wait([task])

    def test_a_cancelled_holder_leaves_no_lease(self, store):
        async def main(busy):
            async with AsyncInterlock(store.url) as il:

                async def hold():
                    async with il.lock("s", ttl=60):
                        await asyncio.sleep(0.1)

                task = asyncio.create_task(hold())
                await asyncio.sleep(0.05)
                await self._cancel(task, busy, 0.1)  # it is at its release
                assert not (await il.show("s")).held

        self._run(main, store)

    def test_a_cancelled_waiter_leaves_no_place(self, store):
        async def main(busy):
            async with AsyncInterlock(store.url) as il:
                await il.acquire("s", ttl=60)
                task = asyncio.create_task(il.acquire("s", wait=0.3))
                await asyncio.sleep(0.1)
                await self._cancel(task, busy, 0.35)  # it is about to withdraw
                assert (await il.show("s")).waiting == 0

        self._run(main, store)

    def test_ctrl_c_leaves_no_lease(self, store, run_python):
        code = """
            import sys, time
            from interlock import Interlock
            il = Interlock(sys.argv[1])
            with il.lock("s", ttl=3600):
                print("held")
                sys.stdin.readline()
                print("leaving")
        """
        process = run_python(code, store.url)
        assert process.stdout.readline() == "held\n"
        with contextlib.closing(sqlite3.connect(store.file, isolation_level=None)) as busy:
            busy.execute("BEGIN IMMEDIATE")
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "leaving\n"
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            busy.execute("ROLLBACK")
        process.wait(20)
        with Interlock(store.url) as il, contextlib.closing(sqlite3.connect(store.file)) as db:
            assert db.execute("SELECT count(*) FROM leases").fetchone() == (0,), "released, not just dead"
            assert not il.show("s").held

    @staticmethod
    def _run(main, store):
        with Interlock(store.url) as il:
            il.show("s")
        with contextlib.closing(sqlite3.connect(store.file, isolation_level=None)) as busy:
            asyncio.run(main(busy))


def test_what_has_ended_is_swept_away_while_a_process_runs(store, monkeypatch):
    from interlock.stores.sqlite import engine

    with Interlock(store.url) as il:
        for number in range(20):
            il.acquire(f"s-{number}", ttl=0.05)
            il.status.set(f"k-{number}", "x", timeout=0.05)
        time.sleep(0.1)
        monkeypatch.setattr(engine, "SWEEP_EVERY", 0)
        il.show("other")
        with contextlib.closing(sqlite3.connect(store.file)) as db:
            for table in ("leases", "statuses"):
                assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
