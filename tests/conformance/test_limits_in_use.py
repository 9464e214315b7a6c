"""il.limit.all(): how much of each limit is used, whoever has counted."""

from __future__ import annotations

import threading
import time

import pytest

from interlock.stores.redis.layout import Layout

from ..conftest import eventually
from .test_limits import LONG, every_algorithm


def in_use(il):
    return {(found.scope, found.algorithm, found.per): found.used for found in il.limit.all()}


def test_nothing_is_used_at_first(il):
    assert il.limit.all() == []
    il.limit.peek("api", limit=3, per=LONG)
    assert il.limit.all() == []


@every_algorithm
@pytest.mark.parametrize("per", [0.05, 1.5, 60, LONG, 86400, 31 * 86400])
def test_what_was_let_through_is_used(il, algorithm, per):
    found = []

    def taken_in_time():  # a short window may be over before it is looked at
        il.limit("api", limit=10, per=per, algorithm=algorithm, cost=3)
        found[:] = il.limit.all()
        return found

    eventually(taken_in_time)
    (limit,) = found
    assert (limit.scope, limit.algorithm, limit.per) == ("api", algorithm, per)
    assert limit.used == 3 or (per < 60 and limit.used > 0)
    assert time.time() - 1 < limit.reset_at < time.time() + per + 1


@every_algorithm
def test_it_counts_as_peek_does(il, algorithm):
    options = {"limit": 5, "per": LONG, "algorithm": algorithm}
    for cost in (1, 3, 2, 1, 1):
        il.limit("api", cost=cost, **options)
        (found,) = il.limit.all()
        peeked = il.limit.peek("api", **options)
        assert found.used == peeked.count
        assert abs(found.reset_at - peeked.reset_at) < 0.1
    il.limit.reset("api", per=LONG, algorithm=algorithm)
    assert il.limit.all() == []


def test_a_bucket_empties(il):
    il.limit("api", limit=20, per=2, cost=20, algorithm="gcra")
    seen = []
    while found := il.limit.all():
        seen.append(found[0].used)
    assert seen[0] >= 18
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) > 5


@every_algorithm
def test_it_is_over_with_its_time(il, algorithm):
    il.limit("api", limit=5, per=0.2, algorithm=algorithm)
    eventually(lambda: il.limit.all() == [])


def test_each_is_told_apart(il):
    scopes = ("api", "api-1", "a:gcra-5", "api:x-3", "n8n-lock-1", "日本", "a*?[b]")
    for number, scope in enumerate(scopes, 1):
        for algorithm in ("fixed-window", "sliding-window", "gcra"):
            for per in (LONG, 2 * LONG):
                il.limit(scope, limit=100, per=per, algorithm=algorithm, cost=number)
    il.once("callback", per=LONG)
    il.acquire("api")
    found = in_use(il)
    assert len(found) == 6 * len(scopes)
    assert {scope: used for (scope, _, _), used in found.items()} == {
        scope: number for number, scope in enumerate(scopes, 1)
    }


@every_algorithm
def test_what_is_booked_ahead_hides_nothing(il, connect, store, algorithm):
    options = {"limit": 2, "per": LONG, "algorithm": algorithm}
    il.limit("api", cost=2, **options)
    others = connect(store.url)
    thread = threading.Thread(target=lambda: others.limit("api", wait=2 * LONG, **options), daemon=True)
    thread.start()
    eventually(lambda: il.limit("api", wait=0.01, **options).retry_after > 0)
    time.sleep(0.3)
    (found,) = il.limit.all()
    assert (found.scope, found.per) == ("api", LONG)
    assert found.used >= 2


class TestOnRedis:
    def test_a_window_of_n8ns_is_found(self, redis_server, connect):
        il = connect(redis_server.url)
        for per in (1, 7, 60, 90, 3600, 8 * 3600):
            with redis_server.client() as n8n:
                n8n.flushall()

                def counted(n8n=n8n, per=per):
                    for _ in range(3):
                        key = f"n8n-ratelimit-api-{int(time.time() * 1000) // (per * 1000)}"
                        if n8n.incr(key) == 1:
                            n8n.expire(key, per)
                    return in_use(il)

                found = eventually(counted)
                assert list(found) == [("api", "fixed-window", per)]

    def test_a_window_that_is_over_is_not(self, redis_server, connect):
        il = connect(redis_server.url)
        with redis_server.client() as n8n:
            for per in (1, 7, 60, 3600, 8 * 3600):
                now = int(time.time() * 1000) // (per * 1000)
                for number in (now - 1, now - 2):
                    n8n.set(f"n8n-ratelimit-api-{number}", 5, px=per * 600)
        assert il.limit.all() == []

    def test_nor_is_one_that_is_too_long_to_tell(self, redis_server, connect):
        il = connect(redis_server.url)
        with redis_server.client() as n8n:
            per = 7 * 86400
            n8n.set(f"n8n-ratelimit-api-{int(time.time()) // per}", 5, ex=per - 10)
        assert il.limit.all() == []

    def test_what_looks_like_one_is_none(self, redis_server, connect):
        il = connect(redis_server.url)
        with redis_server.client() as others:
            for key in (
                "n8n-ratelimit-", "n8n-ratelimit-x", "n8n-ratelimit-x-", "n8n-ratelimit--1",
                "n8n-ratelimit-x-0", f"n8n-ratelimit-x-{'9' * 30}", "n8n-ratelimit-x-1.5",
                "n8n-ratelimit-x-1",
                "interlock:x:gcra-", "interlock:x:gcra-1:queue", "interlock::gcra-1",
            ):  # fmt: skip
                others.set(key, 5, px=60000)
            others.set("n8n-ratelimit-for-ever-1", 5)
        assert il.limit.all() == []

    @pytest.mark.parametrize("prefix", ["app:", "a*b[c]-"])
    def test_a_prefix_keeps_them_apart(self, redis_server, connect, prefix):
        il, other = connect(redis_server.url, prefix=prefix), connect(redis_server.url)
        for algorithm in ("fixed-window", "sliding-window", "gcra"):
            il.limit("api", limit=5, per=LONG, algorithm=algorithm)
        assert len(in_use(il)) == 3
        assert other.limit.all() == []


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("prefix", ["", "app:"])
@pytest.mark.parametrize("scope", ["s", "a:b", "a-1", "s:gcra-5", "{s}", "-"])
def test_keys_are_read_back(tags, prefix, scope):
    layout = Layout(prefix, tags)
    for algorithm in ("fixed-window", "sliding-window", "gcra"):
        key = layout.limit_keys(scope, algorithm, 1000)[0] + ("1000" if algorithm == "fixed-window" else "")
        assert layout.limit_of(key) == (scope, algorithm, 1000)
    for other in layout.limit_keys(scope, "gcra", 1000)[1:] + layout.limit_keys(scope, "once", 1000)[:1]:
        assert layout.limit_of(other) is None
