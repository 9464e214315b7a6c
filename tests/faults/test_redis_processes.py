"""Processes that die, stall, fork, or are interrupted, and what waiting costs."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import statistics
import time

import pytest

from interlock import AsyncInterlock, Interlock, WaitTimeout

from ..conftest import eventually

pytestmark = pytest.mark.timeout(110)

WINDOW = 5.0
SLACK = 5.0  # for a busy machine

HOLDER = """
    import sys, time
    from interlock import Interlock, LeaseLost
    url, ttl = sys.argv[1], float(sys.argv[2])
    il = Interlock(url)
    with il.lock("s", ttl=ttl, label="the holder") as lease:
        print("held", flush=True)
        time.sleep(3600)
"""

WAITERS = """
    import sys, threading
    from interlock import Interlock
    url, count = sys.argv[1], int(sys.argv[2])
    il = Interlock(url)

    def wait():
        with il.lock("s", wait=300, label="process"):
            print("got it", flush=True)

    threads = [threading.Thread(target=wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""

ASYNC_WAITERS = """
    import asyncio, sys
    from interlock import AsyncInterlock
    url, count = sys.argv[1], int(sys.argv[2])

    async def main():
        async with AsyncInterlock(url) as il:
            async def wait():
                async with il.lock("s", wait=300, label="process"):
                    print("got it", flush=True)
            await asyncio.gather(*(wait() for _ in range(count)))

    asyncio.run(main())
"""


def line_of(process):
    return process.stdout.readline().strip()


@pytest.fixture
def il(redis_server):
    with Interlock(redis_server.url) as il:
        yield il


class TestHolder:
    def test_killed_frees_the_scope_within_its_ttl(self, il, redis_server, run_python):
        process = run_python(HOLDER, redis_server.url, "2")
        assert line_of(process) == "held"
        process.kill()
        with il.lock("s", wait=2 + SLACK):
            assert process.wait() == -signal.SIGKILL

    def test_stopped_for_less_than_its_ttl_keeps_the_scope(self, il, redis_server, run_python):
        process = run_python(HOLDER, redis_server.url, "30")
        assert line_of(process) == "held"
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        process.send_signal(signal.SIGCONT)
        assert il.show("s").holders[0].pid == process.pid

    def test_stopped_past_its_ttl_learns_that_the_lease_is_lost(self, il, redis_server, run_python):
        process = run_python(
            """
            import sys
            from interlock import Interlock, LeaseLost
            il = Interlock(sys.argv[1])
            try:
                with il.lock("s", ttl=1) as lease:
                    print("held", flush=True)
                    sys.stdin.readline()
                    print(lease.lost)
                    try:
                        lease.check()
                    except LeaseLost:
                        print("lost at check")
            except LeaseLost:
                print("lost at exit", flush=True)
            """,
            redis_server.url,
        )
        assert line_of(process) == "held"
        process.send_signal(signal.SIGSTOP)
        with il.lock("s", wait=1 + SLACK) as lease:
            process.stdin.write("\n")
            process.stdin.flush()
            process.send_signal(signal.SIGCONT)
            assert [line_of(process) for _ in range(3)] == ["True", "lost at check", "lost at exit"]
            assert process.wait(10) == 0
            assert il.show("s").holders[0].lock_id == lease.lock_id

    def test_stopped_past_its_ttl_has_its_task_cancelled(self, il, redis_server, run_python):
        process = run_python(
            """
            import asyncio, sys
            from interlock import AsyncInterlock, LeaseLost

            async def main():
                async with AsyncInterlock(sys.argv[1]) as il:
                    try:
                        async with il.lock("s", ttl=1):
                            print("held", flush=True)
                            try:
                                await asyncio.sleep(3600)
                            except asyncio.CancelledError:
                                print("cancelled", flush=True)
                                raise
                    except LeaseLost:
                        print("lost at exit", flush=True)

            asyncio.run(main())
            """,
            redis_server.url,
        )
        assert line_of(process) == "held"
        process.send_signal(signal.SIGSTOP)
        with il.lock("s", wait=1 + SLACK):
            process.send_signal(signal.SIGCONT)
            assert [line_of(process), line_of(process)] == ["cancelled", "lost at exit"]
            assert process.wait(10) == 0


@pytest.mark.slow
class TestManyDeadWaiters:
    @pytest.fixture(params=[WAITERS, ASYNC_WAITERS], ids=["threads", "tasks"])
    def crowd(self, request, il, redis_server, run_python):
        """A held scope and 99 who wait for it in 20 processes."""
        holder = il.acquire("s", ttl=300)
        processes = [run_python(request.param, redis_server.url, str(count)) for count in [5] * 19 + [4]]
        eventually(lambda: il.show("s").waiting == 99, 60)
        return holder, processes

    def test_delay_the_last_one_by_a_window_at_the_most(self, il, crowd, redis_server, background):
        holder, processes = crowd
        with Interlock(redis_server.url) as other:
            last = background(other.acquire, "s", wait=60)
            eventually(lambda: il.show("s").waiting == 100)
            for process in processes:
                process.kill()
            released = time.monotonic()
            holder.release()
            last.result(WINDOW + SLACK)
            print(f"served {time.monotonic() - released:.2f} s after the release")

    def test_that_are_only_stopped_delay_it_no_longer_and_get_their_turn_later(
        self, il, crowd, redis_server, background
    ):
        holder, processes = crowd
        with Interlock(redis_server.url) as other:
            last = background(other.acquire, "s", wait=60, ttl=300)
            eventually(lambda: il.show("s").waiting == 100)
            for process in processes:
                process.send_signal(signal.SIGSTOP)
            released = time.monotonic()
            holder.release()
            lease = last.result(WINDOW + SLACK)
            print(f"served {time.monotonic() - released:.2f} s after the release")
            for process in processes:
                process.send_signal(signal.SIGCONT)
            eventually(lambda: il.show("s").waiting >= len(processes), 60)
            assert [h.lock_id for h in il.show("s").holders] == [lease.lock_id]
            lease.release()
            for process in processes:
                assert process.wait(60) == 0


def test_a_killed_waiter_at_the_head_delays_the_next_by_a_window_at_the_most(
    redis_server, run_python, background
):
    url = redis_server.url + "?liveness=1"
    with Interlock(url) as il:
        holder = il.acquire("s", ttl=300)
        process = run_python(WAITERS, url, "1")
        eventually(lambda: il.show("s").waiting == 1)
        waiter = background(il.acquire, "s", wait=60)
        eventually(lambda: il.show("s").waiting == 2)
        process.kill()
        holder.release()
        waiter.result(1 + SLACK)


@pytest.mark.slow
def test_a_waiter_keeps_its_place_when_others_of_its_process_give_up(connect, redis_server, background):
    url = redis_server.url + "?liveness=1"
    il, other = connect(url), connect(url)
    holder = other.acquire("s", ttl=300)
    ahead = background(other.acquire, "s", wait=60, ttl=300)
    eventually(lambda: other.show("s").waiting == 1)
    impatient = [background(il.acquire, "s", wait=1.5) for _ in range(4)]
    eventually(lambda: other.show("s").waiting == 5)
    waiter = background(il.acquire, "s", wait=60)
    eventually(lambda: other.show("s").waiting == 6)
    behind = background(other.acquire, "s", wait=60)
    for each in impatient:
        assert isinstance(each.exception(15), WaitTimeout)
    time.sleep(3)  # for longer than the window somebody else has to speak for it
    holder.release()
    ahead.result(15).release()
    lease = waiter.result(15)
    assert not behind.done()
    lease.release()
    behind.result(15).release()


class TestFork:
    def test_child_unwinding_a_block_releases_nothing(self, il, redis_server, run_python):
        process = run_python(
            """
            import os, sys
            from interlock import Interlock, LeaseLost
            il = Interlock(sys.argv[1])
            with il.lock("s") as lease:
                child = os.fork()
                if child == 0:
                    try:
                        lease.check()
                    except LeaseLost as error:
                        print(error.reason, flush=True)
                    sys.exit(3)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
                lease.check()
                sys.stdin.readline()
            """,
            redis_server.url,
        )
        assert "forked" in line_of(process)
        assert line_of(process) == "3"
        assert il.show("s").holders[0].pid == process.pid
        process.communicate("\n")
        assert process.returncode == 0
        assert not il.show("s").held

    def test_child_does_not_renew(self, il, redis_server, run_python):
        process = run_python(
            """
            import os, sys, time
            from interlock import Interlock
            il = Interlock(sys.argv[1])
            with il.lock("s", ttl=1), il.lock("t", ttl=1):
                child = os.fork()
                if child == 0:
                    with il.lock("of the child", ttl=1):
                        sys.stdin.readline()
                    os._exit(0)
                print("forked", flush=True)
                time.sleep(3600)
            """,
            redis_server.url,
        )
        assert line_of(process) == "forked"
        eventually(lambda: il.show("of the child").held)
        process.kill()
        process.wait()
        for scope in ("s", "t"):
            il.acquire(scope, wait=1 + SLACK)
        assert il.show("of the child").held
        process.stdin.write("\n")  # ends the child, which has inherited the pipe
        process.stdin.flush()
        eventually(lambda: not il.show("of the child").held)

    def test_child_forked_while_others_wait_and_renew_can_use_the_client(self, il, redis_server, run_python):
        theirs = il.acquire("theirs", ttl=300)
        process = run_python(
            """
            import os, sys, threading, time
            from interlock import Interlock
            il = Interlock(sys.argv[1])
            waiter = threading.Thread(target=lambda: il.acquire("theirs", wait=60).release())
            waiter.start()
            while not il.show("theirs").waiting:
                time.sleep(0.01)
            with il.lock("s", ttl=4):
                for number in range(10):
                    child = os.fork()
                    if child == 0:
                        with il.lock(f"child {number}", ttl=4, wait=0) as lease:
                            lease.renew()
                            assert il.show("s").held
                        with il.lock("s2", wait=30), il.lock("s2 too", wait=30):
                            pass
                        os._exit(0)
                    assert os.waitpid(child, 0)[1] == 0
                print("children are done", flush=True)
                waiter.join()
            """,
            redis_server.url,
        )
        assert line_of(process) == "children are done"
        theirs.release()
        assert process.wait(15) == 0
        assert il.locks() == []

    def test_parent_and_children_wait_in_one_line(self, il, redis_server, run_python):
        holder = il.acquire("s", ttl=300)
        process = run_python(
            """
            import os, sys
            from interlock import Interlock
            il = Interlock(sys.argv[1])
            il.show("s")  # a connection that must not be shared
            children = []
            for _ in range(4):
                child = os.fork()
                if child == 0:
                    for _ in range(5):
                        with il.lock("s", wait=60):
                            pass
                    os._exit(0)
                children.append(child)
            with il.lock("s", wait=60):
                pass
            for child in children:
                assert os.waitpid(child, 0)[1] == 0
            """,
            redis_server.url,
        )
        eventually(lambda: il.show("s").waiting == 5)
        holder.release()
        assert process.wait(60) == 0
        assert il.locks() == []

    def test_child_of_a_running_loop_can_use_the_client_in_a_new_one(self, il, redis_server, run_python):
        process = run_python(
            """
            import asyncio, os, sys
            from interlock import AsyncInterlock, LeaseLost
            il = AsyncInterlock(sys.argv[1])

            async def in_child(lease):
                try:
                    lease.check()
                except LeaseLost:
                    print("not the child's", flush=True)
                assert (await lease.release()).idempotent
                async with il.lock("of the child", ttl=4, wait=0):
                    await asyncio.sleep(4.5)
                    print((await il.show("s")).held, flush=True)

            async def main():
                async with il.lock("s", ttl=4) as lease:
                    child = os.fork()
                    if child == 0:
                        asyncio.run(in_child(lease))
                        os._exit(0)
                    while os.waitpid(child, os.WNOHANG) == (0, 0):
                        await asyncio.sleep(0.05)
                    lease.check()
                    waiter = asyncio.create_task(il.acquire("s", wait=60))
                    while not (await il.show("s")).waiting:
                        await asyncio.sleep(0.01)
                await (await waiter).release()
                print("done", flush=True)

            asyncio.run(main())
            """,
            redis_server.url,
        )
        assert [line_of(process) for _ in range(3)] == ["not the child's", "True", "done"]
        assert process.wait(15) == 0
        assert il.locks() == []

    def test_child_unwinding_an_async_block_releases_nothing(self, il, redis_server, run_python):
        process = run_python(
            """
            import asyncio, os, sys
            from interlock import AsyncInterlock
            il = AsyncInterlock(sys.argv[1])

            async def main():
                child = 1
                try:
                    async with il.lock("s") as lease:
                        child = os.fork()
                        if child == 0:
                            raise ZeroDivisionError
                        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
                        lease.check()
                        await asyncio.to_thread(sys.stdin.readline)
                except BaseException as error:
                    if child == 0:
                        os._exit(7 if isinstance(error, ZeroDivisionError) else 8)
                    raise

            asyncio.run(main())
            """,
            redis_server.url,
        )
        assert line_of(process) == "7"
        assert il.show("s").holders[0].pid == process.pid
        process.communicate("\n")
        assert process.returncode == 0
        assert not il.show("s").held


SYNC_BLOCK = """
    import sys, time
    from interlock import Interlock
    il = Interlock(sys.argv[1])
    print("starts", flush=True)
    with il.lock("s", wait=300):
        print("held", flush=True)
        while True:  # a signal just before a sleep ends only the next one
            time.sleep(0.05)
"""

ASYNC_BLOCK = """
    import asyncio, sys
    from interlock import AsyncInterlock

    async def main():
        async with AsyncInterlock(sys.argv[1]) as il:
            print("starts", flush=True)
            async with il.lock("s", wait=300):
                print("held", flush=True)
                await asyncio.sleep(3600)

    asyncio.run(main())
"""


@pytest.mark.parametrize("code", [SYNC_BLOCK, ASYNC_BLOCK], ids=["sync", "async"])
class TestCtrlC:
    def test_of_a_holder_leaves_no_lease(self, il, redis_server, run_python, code):
        process = run_python(code, redis_server.url)
        assert [line_of(process), line_of(process)] == ["starts", "held"]
        process.send_signal(signal.SIGINT)
        assert process.wait(15) != 0
        assert not il.show("s").held

    def test_of_a_waiter_leaves_no_place(self, il, redis_server, run_python, code):
        holder = il.acquire("s", ttl=300)
        process = run_python(code, redis_server.url)
        eventually(lambda: il.show("s").waiting == 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(15) != 0
        info = il.show("s")
        assert (info.waiting, info.holders[0].lock_id) == (0, holder.lock_id)

    @pytest.mark.slow
    def test_on_the_way_into_the_queue_leaves_no_place(self, il, redis_server, run_python, code):
        il.acquire("s", ttl=300)
        chance = random.Random(7)
        for _ in range(15):
            process = run_python(code, redis_server.url)
            assert line_of(process) == "starts"
            time.sleep(chance.uniform(0, 0.03))
            process.send_signal(signal.SIGINT)
            assert process.wait(15) != 0
            assert il.show("s").waiting == 0


async def waiting(il, count):
    """Until so many wait."""
    while (await il.show("s")).waiting < count:  # noqa: ASYNC110 - there is nothing else to wait for
        await asyncio.sleep(0.002)


class TestCancelling:
    def test_a_waiter_leaves_neither_a_lease_nor_a_place(self, redis_server):
        async def main():
            async with AsyncInterlock(redis_server.url) as il, AsyncInterlock(redis_server.url) as other:
                holder = await other.acquire("s", ttl=300)

                async def wait():
                    async with il.lock("s", wait=300):
                        pass

                for ticks in range(300):
                    task = asyncio.create_task(wait())
                    for _ in range(ticks % 50):
                        await asyncio.sleep(0)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    info = await other.show("s")
                    assert (info.waiting, len(info.holders)) == (0, 1), ticks
                await holder.release()

        asyncio.run(main())

    def test_a_newcomer_leaves_no_lease(self, redis_server):
        async def main():
            async with AsyncInterlock(redis_server.url) as il, AsyncInterlock(redis_server.url) as other:

                async def hold():
                    async with il.lock("s"):
                        await asyncio.sleep(0)

                for ticks in range(200):
                    task = asyncio.create_task(hold())
                    for _ in range(ticks % 40):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])
                    assert not (await other.show("s")).held, ticks

        asyncio.run(main())

    def test_whoever_is_just_being_served_passes_the_scope_on(self, redis_server):
        async def main():
            async with AsyncInterlock(redis_server.url) as il, AsyncInterlock(redis_server.url) as other:
                for ticks in range(100):
                    holder = await other.acquire("s", ttl=300)
                    first = asyncio.create_task(il.acquire("s", ttl=300))
                    await waiting(other, 1)
                    second = asyncio.create_task(il.acquire("s", ttl=300))
                    await waiting(other, 2)
                    await holder.release()
                    for _ in range(ticks % 25):
                        await asyncio.sleep(0)
                    first.cancel()
                    await asyncio.wait([first])
                    if not first.cancelled():
                        await first.result().release()
                    async with asyncio.timeout(SLACK):
                        await (await second).release()

        asyncio.run(main())


class TestCost:
    @pytest.mark.slow
    def test_ten_thousand_waiting_tasks_share_two_connections(self, redis_server):
        count = 10_000
        served, in_line = [], []

        async def main():
            async with AsyncInterlock(redis_server.url + "?client_name=crowd") as il:
                holder = await il.acquire("s", ttl=300)

                async def wait(number):
                    async with il.lock("s", label=str(number)):
                        served.append(number)

                tasks = [asyncio.create_task(wait(number)) for number in range(count)]
                await waiting(il, count)
                with redis_server.client() as foreign:
                    assert len([c for c in foreign.client_list() if c["name"] == "crowd"]) == 2
                in_line.extend(int(waiter.label) for waiter in (await il.show("s")).waiters)
                await holder.release()
                await asyncio.gather(*tasks)
                with redis_server.client() as foreign:
                    assert len([c for c in foreign.client_list() if c["name"] == "crowd"]) == 2

        asyncio.run(main())
        assert served[: len(in_line)] == in_line
        assert sorted(served) == list(range(count))

    @pytest.mark.slow
    def test_ten_thousand_cancelled_tasks_leave_no_place(self, redis_server):
        count = 10_000

        async def main():
            async with AsyncInterlock(redis_server.url) as il:
                await il.acquire("s", ttl=300)
                tasks = [asyncio.create_task(il.acquire("s")) for number in range(count)]
                await waiting(il, count)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                assert (await il.show("s")).waiting == 0

        asyncio.run(main())

    @pytest.mark.slow
    @pytest.mark.parametrize("code", [WAITERS, ASYNC_WAITERS], ids=["threads", "tasks"])
    def test_idle_waiters_cost_one_command_in_five_seconds(self, il, redis_server, run_python, code):
        with il.lock("s", ttl=30), redis_server.client() as foreign:
            run_python(code, redis_server.url + "?client_name=idle", "5")
            eventually(lambda: il.show("s").waiting == 5)
            time.sleep(1)  # what queueing costs is over
            idle = {c["addr"] for c in foreign.client_list() if c["name"] == "idle"}
            assert idle
            seconds = 16
            said = commands_of(redis_server, seconds)
            commands = [line for line in said if any(f" {address}]" in line for address in idle)]
            print(f"{len(commands)} commands in {seconds} s")
            assert 1 <= len(commands) <= seconds / 5 + 1


def commands_of(server, seconds):
    """What clients send meanwhile, in the words of MONITOR; what scripts call themselves is not among it."""
    heard = b""
    with socket.create_connection(("127.0.0.1", server.port)) as monitor:
        monitor.sendall(b"MONITOR\r\n")
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            monitor.settimeout(left)
            try:
                heard += monitor.recv(65536)
            except TimeoutError:
                break
    return [line for line in heard.decode(errors="replace").splitlines() if " lua]" not in line]


def measure(name, tries, once):
    """The time that waking took, over so many tries."""
    times = sorted(once() for _ in range(tries))
    print(f"{name}: p50 {statistics.median(times) * 1000:.1f} ms, max {times[-1] * 1000:.1f} ms")
    return times


@pytest.mark.slow
class TestWaking:
    """Generous by the clock: what matters is that nobody waits for the next look, five seconds later."""

    TRIES = 20

    def woken(self, take, prepare, touch):
        """Seconds from the touch to the grant."""
        prepare()
        waiter = take()
        time.sleep(0.15)  # it has settled down in its place
        assert not waiter.done()
        began = touch()
        lease, at = waiter.result(15)
        lease.release()
        return at - began

    @pytest.fixture
    def take(self, connect, redis_server, background):
        il = connect(redis_server.url)

        def acquire():
            return il.acquire("s", wait=60), time.monotonic()

        def start():
            waiter = background(acquire)
            eventually(lambda: il.show("s").waiting)
            return waiter

        return start

    def test_by_a_foreign_del(self, take, redis_server, request):
        with redis_server.client() as foreign:

            def prepare():
                foreign.set("n8n-lock-s", 1, ex=3600)
                foreign.set("n8n-lock-s:meta", '{"lock_id":"foreign","execution_id":"77"}', ex=3600)

            def touch():
                began = time.monotonic()
                foreign.delete("n8n-lock-s", "n8n-lock-s:meta")
                return began

            times = measure(request.node.name, self.TRIES, lambda: self.woken(take, prepare, touch))
        assert times[-1] < 1

    def test_by_a_foreign_del_of_one_after_the_other(self, take, redis_server, request):
        with redis_server.client() as foreign:

            def prepare():
                foreign.set("n8n-lock-s", 1, ex=3600)
                foreign.set("n8n-lock-s:meta", '{"lock_id":"foreign","execution_id":"77"}', ex=3600)

            def touch():
                foreign.delete("n8n-lock-s")
                began = time.monotonic()
                foreign.delete("n8n-lock-s:meta")
                return began

            times = measure(request.node.name, self.TRIES, lambda: self.woken(take, prepare, touch))
        assert times[-1] < 1

    def test_by_the_expiry_of_a_lease(self, take, il, request):
        lease = None

        def prepare():
            nonlocal lease
            lease = il.acquire("s", ttl=0.4)

        def touch():
            left = il.show("s").holders[0].expires_in
            return time.monotonic() + left

        times = measure(request.node.name, self.TRIES, lambda: self.woken(take, prepare, touch))
        assert times[-1] < 1

    def test_by_the_expiry_of_a_foreign_hold(self, take, redis_server, request):
        with redis_server.client() as foreign:

            def prepare():
                foreign.set("n8n-lock-s", 1, px=400)
                foreign.set("n8n-lock-s:meta", '{"lock_id":"foreign"}', px=400)

            def touch():
                return time.monotonic() + foreign.pttl("n8n-lock-s:meta") / 1000

            times = measure(request.node.name, self.TRIES, lambda: self.woken(take, prepare, touch))
        assert times[-1] < 1

    def test_by_a_release(self, take, il, request):
        lease = None

        def prepare():
            nonlocal lease
            lease = il.acquire("s", ttl=300)

        def touch():
            began = time.monotonic()
            lease.release()
            return began

        times = measure(request.node.name, self.TRIES, lambda: self.woken(take, prepare, touch))
        assert times[-1] < 1
