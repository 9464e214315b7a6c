"""Many processes, threads and tasks on one scope, and a referee that counts who is inside."""

from __future__ import annotations

import pytest

WORKERS, HOLDS = 4, 12

WORKER = """
    import asyncio, os, sys, threading
    from interlock import AsyncInterlock, Interlock
    url, log, permits, holds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    out = os.open(log, os.O_WRONLY | os.O_APPEND)  # one write a line: the kernel keeps their order

    def threads():
        il = Interlock(url)
        def work():
            for _ in range(holds // 2):
                with il.lock("s", wait=60, permits=permits) as lease:
                    os.write(out, f"+ {lease.fence}\\n".encode())
                    os.write(out, b"- 0\\n")
        crew = [threading.Thread(target=work) for _ in range(2)]
        [t.start() for t in crew]
        [t.join() for t in crew]

    async def tasks():
        async with AsyncInterlock(url) as il:
            async def work():
                for _ in range(holds // 4):
                    async with il.lock("s", wait=60, permits=permits) as lease:
                        os.write(out, f"+ {lease.fence}\\n".encode())
                        await asyncio.sleep(0)
                        os.write(out, b"- 0\\n")
            await asyncio.gather(*[work() for _ in range(4)])

    threads()
    asyncio.run(tasks())
    print("done")
"""


@pytest.mark.parametrize("permits", [1, 3])
def test_never_more_inside_than_permits(store, run_python, tmp_path, permits):
    log = tmp_path / "log"
    log.touch()
    crew = [run_python(WORKER, store.url, str(log), str(permits), str(HOLDS)) for _ in range(WORKERS)]
    for worker in crew:
        assert worker.stdout.readline() == "done\n"
    inside, entered, fences = 0, 0, []
    for line in log.read_text().splitlines():
        sign, fence = line.split()
        inside += 1 if sign == "+" else -1
        assert 0 <= inside <= permits
        if sign == "+":
            entered += 1
            fences.append(int(fence))
    assert entered == WORKERS * HOLDS * 2
    assert len(set(fences)) == entered
    if permits == 1:
        assert fences == sorted(fences)


def test_a_killed_waiter_is_not_given_the_scope(store, run_python, connect):
    code = """
        import os, signal, sys, threading
        from interlock import Interlock
        il = Interlock(sys.argv[1])
        threading.Thread(target=il.acquire, args=("held-by-us",), kwargs={"wait": 60}, daemon=True).start()
        while not il.show("held-by-us").waiting:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    """
    il = connect(store.url)
    lease = il.acquire("held-by-us")
    process = run_python(code, store.url)
    process.wait()
    lease.release()
    assert not il.show("held-by-us").held
    assert process.returncode == -9
    il.acquire("held-by-us", wait=0)
