"""What only tasks can do: be cancelled, and cancel."""

from __future__ import annotations

import asyncio

import pytest

from interlock import AsyncInterlock, InterlockError, LeaseLost


async def until(condition):
    async with asyncio.timeout(15):
        while not await condition():  # noqa: ASYNC110 - the condition is in the store
            await asyncio.sleep(0.01)


def run(work):
    return asyncio.run(work)


def test_a_cancelled_waiter_leaves_nothing_behind(store):
    async def main():
        async with AsyncInterlock(store.url) as il, AsyncInterlock(store.url) as witness:
            lease = await il.acquire("s")
            waiter = asyncio.create_task(il.acquire("s", wait=60))

            async def is_waiting():
                return (await witness.show("s")).waiting

            await until(is_waiting)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert (await witness.show("s")).waiting == 0
            await lease.release()
            assert not (await witness.show("s")).held

    run(main())


def test_a_waiter_that_is_cancelled_at_any_moment_leaves_nothing_behind(store):
    async def main():
        async with AsyncInterlock(store.url) as il, AsyncInterlock(store.url) as witness:
            for steps in range(40):
                scope = f"s{steps % 2}"
                blocker = await il.acquire(scope) if steps % 2 else None
                task = asyncio.create_task(il.acquire(scope, wait=60))
                for _ in range(steps // 2):
                    await asyncio.sleep(0)
                if task.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await task
                else:
                    await task.result().release()
                if blocker:
                    await blocker.release()
                info = await witness.show(scope)
                assert not info.held, f"cancelled after {steps // 2} steps"
                assert info.waiting == 0

    run(main())


def test_the_body_is_cancelled_when_the_lease_is_lost(store):
    async def main():
        async with AsyncInterlock(store.url) as il:
            reached = []
            with pytest.raises(LeaseLost):
                async with il.lock("s", ttl=0.6):
                    await il.break_("s")
                    await asyncio.sleep(60)
                    reached.append("the end")
            assert not reached
            assert asyncio.current_task().cancelling() == 0
            await asyncio.sleep(0)

    run(main())


def test_a_body_that_checks_for_itself_raises_the_loss_once(store):
    async def main():
        async with AsyncInterlock(store.url) as il:
            with pytest.raises(LeaseLost):
                async with il.lock("s", ttl=0.3) as lease:
                    lease.due = float("inf")  # as if every renewal failed
                    il._renewals.remove(lease)
                    while True:
                        lease.check()
            await asyncio.sleep(0)
            assert asyncio.current_task().cancelling() == 0
            async with il.lock("s", wait=5):
                pass

    run(main())


def test_a_cancellation_from_outside_stays_one(store):
    async def main():
        async with AsyncInterlock(store.url) as il:

            async def body():
                async with il.lock("s"):
                    await asyncio.sleep(60)

            task = asyncio.create_task(body())

            async def is_held():
                return (await il.show("s")).held

            await until(is_held)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not (await il.show("s")).held

    run(main())


def test_one_client_serves_several_loops_one_after_the_other(store):
    il = AsyncInterlock(store.url)

    async def hold():
        async with il.lock("s") as lease:
            return lease.fence

    assert run(hold()) < run(hold())


def test_a_thousand_tasks_take_turns(store):
    async def main():
        inside = served = 0
        async with AsyncInterlock(store.url) as il:

            async def work():
                nonlocal inside, served
                async with il.lock("s", wait=60):
                    inside += 1
                    assert inside == 1
                    await asyncio.sleep(0)
                    inside -= 1
                    served += 1

            await asyncio.gather(*[work() for _ in range(1000)])
        assert served == 1000

    run(main())


def test_a_second_loop_that_runs_at_the_same_time_is_refused(store):
    """It would take the connections, and with them the renewals, from under the first."""

    async def main():
        async with AsyncInterlock(store.url) as il, il.lock("s", ttl=4) as lease:
            with pytest.raises(InterlockError, match="make one for each loop"):
                await asyncio.to_thread(asyncio.run, il.status.get("s"))
            await asyncio.sleep(4.5)
            lease.check()

    asyncio.run(main())
