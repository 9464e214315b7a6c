from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import InvalidInput, validate
from interlock.stores.redis.layout import Layout

LIMITS = [("fixed-window", 1000), ("sliding-window", 1000), ("gcra", 1000), ("gcra", 2000), ("once", 1000)]
SCOPES = ["s", "s:queue", "s:memo", "a:b", "meta", "{s}", "s}", "wake:x", "s:meta:x", "-1"]


def test_plain_keys_are_those_of_the_n8n_pattern():
    assert Layout().counter("excel-42") == "n8n-lock-excel-42"
    assert Layout().sidecar("excel-42") == "n8n-lock-excel-42:meta"


def keys_of(layout, scope):
    """All that belong to the scope alone; for a fixed window, that of its first window."""
    keys = [*layout.scope_keys(scope), layout.execution(scope)]
    for algorithm, per in LIMITS:
        used, *others = layout.limit_keys(scope, algorithm, per)
        keys += [f"{used}0" if algorithm == "fixed-window" else used, others[0]]
    keys.append(layout.limit_keys(scope, "fixed-window", 1000)[3])
    return [key for key in keys if key != layout.followed]


@pytest.mark.parametrize("tags", [False, True])
def test_no_two_scopes_share_a_key(tags):
    layout = Layout(hash_tags=tags)
    keys = list(itertools.chain.from_iterable(keys_of(layout, scope) for scope in SCOPES))
    assert len(keys) == len(set(keys))


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_accepted_scopes_never_share_a_key(one, two):
    try:
        validate.scope(one)
        validate.scope(two)
    except InvalidInput:
        return
    if one != two:
        assert not set(keys_of(Layout(), one)) & set(keys_of(Layout(), two))


def _hash_tag(key):
    """The part of a key that Redis Cluster hashes."""
    start = key.find("{")
    end = key.find("}", start + 1)
    return key[start + 1 : end] if start >= 0 and end > start + 1 else key


@pytest.mark.parametrize("scope", SCOPES)
def test_on_a_cluster_all_keys_of_a_scope_lie_in_one_slot(scope):
    assert len({_hash_tag(key) for key in keys_of(Layout("app:", hash_tags=True), scope)}) == 1


def test_a_scope_that_would_scatter_is_refused_on_a_cluster():
    with pytest.raises(InvalidInput, match="must not begin with '}'"):
        Layout(hash_tags=True).scope_keys("}s")


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("scope", SCOPES)
def test_the_scope_can_be_read_from_its_keys(scope, tags):
    layout = Layout("p:", hash_tags=tags)
    keys = layout.scope_keys(scope)[:8]
    assert {layout.scope_of(key) for key in keys} == {scope}
    assert layout.key_of_status(layout.status_keys(scope)[0]) == scope


@pytest.mark.parametrize("prefix", ["n8n-lock-", "interlock:x", "process_status_", "a b", "a{"])
def test_prefixes_that_would_collide_are_refused(prefix):
    with pytest.raises(InvalidInput, match="prefix must not"):
        Layout(prefix)


def test_prefixes_keep_clients_apart(connect, redis_server):
    one, two = connect(redis_server.url, prefix="one:"), connect(f"{redis_server.url}?prefix=t*[w]o:")
    with one.lock("s"), two.lock("s") as lease:
        assert lease.key == "t*[w]o:n8n-lock-s"
        assert [info.scope for info in two.locks()] == ["s"]
        assert one.show("s").holders[0].lock_id != two.show("s").holders[0].lock_id
