"""Rate limits: what each algorithm promises, on every store, for threads and for tasks."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from interlock import AsyncInterlock, InvalidInput, LimitExceeded

from ..conftest import eventually

ALGORITHMS = ["fixed-window", "sliding-window", "gcra"]
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
PACE = 0.98  # of two clocks while one of them is being set
LONG = 3600.0  # no window of that length ends while a test runs, or hardly ever


def use_up(il, scope, **options):
    """All that is let through at once."""
    decisions = []
    while (decision := il.limit(scope, **options)).allowed:
        decisions.append(decision)
    return decisions


@every_algorithm
def test_so_many_are_let_through_and_no_more(il, algorithm):
    options = {"limit": 3, "per": LONG, "algorithm": algorithm}
    decisions = [il.limit("api", **options) for _ in range(5)]
    assert [d.allowed for d in decisions] == [True, True, True, False, False]
    assert [d.count for d in decisions] == [1, 2, 3, 4, 4], "what is denied is not counted"
    assert [d.remaining for d in decisions] == [2, 1, 0, 0, 0]
    assert {(d.scope, d.limit) for d in decisions} == {("api", 3)}
    assert all(d.retry_after == 0 for d in decisions[:3])
    assert all(0 < d.retry_after <= LONG for d in decisions[3:])
    assert all(time.time() < d.reset_at < time.time() + LONG + 60 for d in decisions)
    assert [bool(d) for d in decisions] == [d.allowed for d in decisions]


@every_algorithm
def test_clients_of_both_kinds_share_a_budget(il, connect, store, algorithm):
    options = {"limit": 2, "per": LONG, "algorithm": algorithm}
    assert il.limit("api", **options).allowed
    assert connect(store.url).limit("api", **options).allowed
    assert not il.limit("api", **options).allowed


@every_algorithm
def test_scopes_algorithms_and_spans_are_apart(il, algorithm):
    assert len(use_up(il, "api", limit=2, per=LONG, algorithm=algorithm)) == 2
    assert len(use_up(il, "api", limit=2, per=LONG + 1, algorithm=algorithm)) == 2
    assert len(use_up(il, "other", limit=2, per=LONG, algorithm=algorithm)) == 2
    for other in set(ALGORITHMS) - {algorithm}:
        assert len(use_up(il, "api", limit=2, per=LONG, algorithm=other)) == 2


@every_algorithm
def test_a_call_may_cost_more_than_one(il, algorithm):
    options = {"limit": 10, "per": LONG, "algorithm": algorithm}
    assert il.limit("api", cost=7, **options).remaining == 3
    denied = il.limit("api", cost=4, **options)
    assert not denied.allowed
    assert denied.count == 11
    assert il.limit("api", cost=3, **options).remaining == 0


@every_algorithm
def test_peeking_tells_what_a_call_would_be_told_and_counts_nothing(il, algorithm):
    options = {"limit": 2, "per": LONG, "algorithm": algorithm}
    for _ in range(3):
        seen = il.limit.peek("api", **options)
        assert (seen.allowed, seen.count, seen.remaining) == (True, 0, 2)
    il.limit("api", **options)
    assert il.limit.peek("api", **options).count == 1
    assert not il.limit.peek("api", cost=2, **options).allowed
    il.limit("api", **options)
    seen = il.limit.peek("api", **options)
    assert (seen.allowed, seen.count, seen.remaining) == (False, 2, 0)
    assert seen.retry_after > 0


@every_algorithm
def test_a_reset_gives_all_of_it_back(il, algorithm):
    options = {"limit": 2, "per": LONG, "algorithm": algorithm}
    use_up(il, "api", **options)
    assert il.limit.reset("api", per=LONG, algorithm=algorithm) is True
    assert len(use_up(il, "api", **options)) == 2
    assert il.limit.reset("other", per=LONG, algorithm=algorithm) is False


@every_algorithm
def test_another_limit_on_the_same_budget_counts_what_was_let_through(il, algorithm):
    for _ in range(2):
        assert il.limit("api", limit=2, per=LONG, algorithm=algorithm).allowed
    wider = use_up(il, "api", limit=20, per=LONG, algorithm=algorithm)
    assert len(wider) == 18
    assert not il.limit("api", limit=5, per=LONG, algorithm=algorithm).allowed


@every_algorithm
def test_whoever_comes_when_it_is_worth_it_is_let_through(il, algorithm):
    options = {"limit": 3, "per": 0.3, "algorithm": algorithm}
    for _ in range(3):
        while (decision := il.limit("api", **options)).allowed:
            pass
        time.sleep(decision.retry_after)
        assert il.limit("api", **options).allowed


@every_algorithm
def test_a_caller_waits_for_its_turn(il, algorithm):
    options = {"limit": 2, "per": 0.3, "algorithm": algorithm}
    while (denied := il.limit("api", **options)).allowed:
        pass
    waited = il.limit("api", wait=5, **options)
    assert waited.allowed
    assert waited.waited > 0
    assert denied.retry_after <= 0.3
    assert il.limit("api", wait=None, **options).allowed


@every_algorithm
def test_whose_turn_would_come_too_late_is_told_at_once_and_books_nothing(il, algorithm):
    options = {"limit": 2, "per": LONG, "algorithm": algorithm}
    use_up(il, "api", **options)
    before = il.limit.peek("api", **options)
    denied = il.limit("api", wait=0.5, **options)
    assert not denied.allowed
    assert denied.retry_after > 0.5
    assert abs(il.limit.peek("api", **options).retry_after - before.retry_after) < 5


@every_algorithm
def test_those_who_wait_come_in_their_order_at_the_rate_and_ask_once(connect, clean_redis, algorithm):
    from ..servers import redis_binaries

    server = clean_redis(next(iter(redis_binaries())))
    il = connect(server.url)
    options = {"limit": 10, "per": 0.5, "algorithm": algorithm}
    il.limit.peek("api", **options)
    use_up(il, "api", **options)
    passes, lock = {}, threading.Lock()

    def wait_for_turn(number):
        decision = il.limit("api", wait=60, **options)
        with lock:
            passes[number] = (decision, time.time())

    with server.client() as admin:
        admin.config_resetstat()
        threads = []
        for number in range(50):
            threads.append(threading.Thread(target=wait_for_turn, args=(number,)))
            threads[-1].start()
            eventually(lambda n=number: asked(admin) == n + 1)
        for thread in threads:
            thread.join()
        assert asked(admin) == 50, "nobody asks twice"
    assert all(decision.allowed for decision, _ in passes.values())
    # When all is free again: the end of its window, the end of a span after it, or when the bucket is empty,
    # which a full one is after 0.5 s.
    free_at = [passes[number][0].reset_at for number in range(50)]
    assert free_at == sorted(free_at), "not in the order in which they came"
    for free, (_, back) in zip(free_at, (passes[number] for number in range(50)), strict=True):
        assert back >= free - 0.5 - 0.001, "let through before its turn"
    assert free_at[-1] - free_at[0] >= 4 * 0.5 * 0.9, "faster than the rate"


def asked(admin):
    return admin.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


@every_algorithm
def test_whoever_does_not_wait_does_not_overtake_those_who_do(connect, store, algorithm):
    options = {"limit": 1, "per": 0.4, "algorithm": algorithm}
    il = connect(store.url)
    assert use_up(il, "api", **options)
    thread = threading.Thread(target=lambda: il.limit("api", wait=30, **options))
    thread.start()
    booked = il.limit.peek("api", **options).retry_after
    eventually(lambda: il.limit.peek("api", **options).retry_after > booked or not thread.is_alive())
    while thread.is_alive():
        decision = il.limit("api", **options)
        assert not decision.allowed or not thread.is_alive() or decision.reset_at > time.time()
        time.sleep(0.02)
    thread.join()


@every_algorithm
def test_those_who_give_up_give_their_turns_back(store, algorithm):
    options = {"limit": 5, "per": 0.5, "algorithm": algorithm}

    async def main():
        async with AsyncInterlock(store.url) as il:
            while (await il.limit("api", **options)).allowed:
                pass
            waiting = [asyncio.create_task(wait_for_turn(il)) for _ in range(200)]
            await asyncio.sleep(0.2)
            far = (await il.limit.peek("api", **options)).retry_after
            assert far > 10, "they have booked some twenty seconds"
            random.shuffle(waiting)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            near = (await il.limit.peek("api", **options)).retry_after
            assert near <= 0.5, "nobody waits any more, but it looks as if"

    async def wait_for_turn(il):
        return await il.limit("api", wait=60, **options)

    asyncio.run(main())


@every_algorithm
def test_a_turn_that_was_given_back_goes_to_whoever_waits_next(store, algorithm):
    options = {"limit": 1, "per": 0.5, "algorithm": algorithm}

    async def main():
        async with AsyncInterlock(store.url) as il:
            while (await il.limit("api", **options)).allowed:
                pass
            waiting = []
            for _ in range(6):
                waiting.append(asyncio.create_task(wait_for_turn(il)))
                await asyncio.sleep(0.01)
            for task in waiting[1:5]:
                task.cancel()
            await asyncio.gather(*waiting[1:5], return_exceptions=True)
            next_in_line = await wait_for_turn(il)
            assert not waiting[5].done(), "it had to wait for the last, although a turn was free before"
            assert next_in_line.allowed
            await waiting[0]
            waiting[5].cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def wait_for_turn(il):
        return await il.limit("api", wait=60, **options)

    asyncio.run(main())


def test_a_sliding_window_never_lets_more_through_than_the_limit_in_any_span(il):
    """Also across the edges of windows, where a fixed one lets twice as many through."""
    limit, per = 5, 0.1
    passes = []
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        before = time.monotonic()
        decision = il.limit("api", limit=limit, per=per, algorithm="sliding-window")
        if decision.allowed:
            passes.append((before, time.monotonic()))
        else:
            time.sleep(random.choice([0, 0, decision.retry_after, decision.retry_after / 2]))
    assert len(passes) > limit
    for (early, _), (_, late) in zip(passes, passes[limit:], strict=False):
        assert late - early > per * PACE  # tests/model looks more closely


def test_gcra_lets_a_burst_through_and_then_one_after_the_other(il):
    burst, limit, per = 4, 10, 0.5
    asked = []
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        before = time.monotonic()
        if il.limit("api", limit=limit, per=per, burst=burst, algorithm="gcra").allowed:
            asked.append((before, time.monotonic()))
    assert len(asked) > burst
    for i, (begin, _) in enumerate(asked):
        for j in range(i, len(asked)):
            assert j - i + 1 <= burst + (asked[j][1] - begin) / PACE * limit / per


def test_gcra_without_a_burst_is_even(il):
    assert il.limit("api", limit=10, per=LONG, burst=1, algorithm="gcra").allowed
    denied = il.limit("api", limit=10, per=LONG, burst=1, algorithm="gcra")
    assert LONG / 10 - 60 < denied.retry_after <= LONG / 10


class TestBlocksAndDecorators:
    def test_a_block_is_entered_only_within_the_limit(self, store):
        from interlock import Interlock

        il = Interlock(store.url)
        with il.limit("api", limit=1, per=LONG) as decision:
            assert decision.allowed
        with (
            pytest.raises(LimitExceeded, match="limit of 1 on 'api'") as refused,
            il.limit("api", limit=1, per=LONG),
        ):
            pytest.fail("it was let through")
        assert refused.value.retry_after > 0
        assert refused.value.decision.count == 2
        il.close()

    def test_an_async_limit_that_is_not_awaited_is_no_answer(self, store):
        async def main():
            async with AsyncInterlock(store.url) as il:
                with pytest.raises(TypeError, match="has to be awaited"):
                    bool(il.limit("api", limit=1, per=LONG))

        asyncio.run(main())

    def test_an_async_block_is_entered_only_within_the_limit(self, store):
        async def main():
            async with AsyncInterlock(store.url) as il:
                async with il.limit("api", limit=1, per=LONG) as decision:
                    assert decision.allowed
                with pytest.raises(LimitExceeded):
                    async with il.limit("api", limit=1, per=LONG):
                        pytest.fail("it was let through")

        asyncio.run(main())

    def test_a_function_is_called_only_within_the_limit(self, il):
        calls = []

        @il.limited("api", limit=2, per=LONG)
        def call(number):
            calls.append(number)
            return number + 1

        assert (call(1), call(2)) == (2, 3)
        with pytest.raises(LimitExceeded):
            call(3)
        assert calls == [1, 2]

    def test_the_scope_may_depend_on_the_arguments(self, il):
        @il.limited(lambda user: f"api-{user}", limit=1, per=LONG)
        def call(user):
            return user

        assert (call("a"), call("b")) == ("a", "b")
        with pytest.raises(LimitExceeded, match="api-a"):
            call("a")


class TestOnce:
    def test_is_true_for_the_first_and_false_for_the_rest(self, il, connect, store):
        assert il.once("callback-77", per=LONG) is True
        assert il.once("callback-77", per=LONG) is False
        assert connect(store.url).once("callback-77", per=1) is False
        assert il.once("callback-78", per=LONG) is True

    def test_is_false_until_the_first_has_lapsed_whatever_others_say(self, il):
        assert il.once("callback", per=LONG)
        time.sleep(0.15)
        assert not il.once("callback", per=0.1)

    def test_lapses(self, il):
        assert il.once("callback", per=0.1)
        eventually(lambda: il.once("callback", per=0.1))

    def test_is_true_for_one_of_many_at_the_same_moment(self, il):
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(il.once("callback", per=LONG))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [False] * 7 + [True]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"scope": ""}, "scope must have 1 to 512"),
        ({"scope": "a\nb"}, "control characters"),
        ({"limit": 0}, "limit must be a whole number from 1 to"),
        ({"limit": -1}, "limit must be a whole number from 1 to"),
        ({"limit": 1.5}, "limit must be a whole number"),
        ({"limit": True}, "limit must be a whole number"),
        (
            {"limit": 2_000_000, "algorithm": "sliding-window"},
            "limit must be a whole number from 1 to 1000000",
        ),
        ({"per": 0}, "per must be from 0.01"),
        ({"per": -1}, "per must be from"),
        ({"per": "60"}, "per must be a number"),
        ({"cost": 6}, "cost must be a whole number from 1 to 5, the limit, not 6"),
        ({"cost": 0}, "cost must be a whole number from 1"),
        ({"cost": -1}, "cost must be a whole number from 1"),
        ({"cost": 3, "burst": 2, "algorithm": "gcra"}, "cost must be a whole number from 1 to 2, the burst"),
        ({"burst": 2}, "burst is for algorithm='gcra' only"),
        ({"burst": 0, "algorithm": "gcra"}, "burst must be a whole number from 1"),
        ({"algorithm": "leaky"}, "algorithm must be one of fixed-window, sliding-window, gcra, not 'leaky'"),
        ({"algorithm": ["gcra"]}, "algorithm must be one of"),
        ({"wait": -1}, "wait must be from 0"),
        ({"wait": "1"}, "wait must be a number"),
    ],
)
def test_bad_input_is_refused_in_one_sentence_and_counts_nothing(il, arguments, says):
    usual = {"scope": "api", "limit": 5, "per": LONG}
    for ask in (il.limit, il.limited):
        options = {**usual, **arguments}
        with pytest.raises(InvalidInput, match=says) as refused:
            ask(options.pop("scope"), **options)
        assert "\n" not in str(refused.value)
    assert il.limit.peek("api", limit=5, per=LONG).count == 0


@every_algorithm
@pytest.mark.parametrize("scope", ["a b", "ä€🦀", "{x}", 'quo"te', "a:b:c", "*?[x]", "x:meta", "x" * 512])
def test_odd_scopes_work(il, algorithm, scope):
    assert len(use_up(il, scope, limit=2, per=LONG, algorithm=algorithm)) == 2
