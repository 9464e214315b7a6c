from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import InvalidInput, validate
from interlock.stores.redis.layout import Layout

SCOPES = ["s", "s:queue", "s:memo", "a:b", "meta", "{s}", "s}", "wake:x", "s:meta:x", "-1"]


def test_plain_keys_are_those_of_the_n8n_pattern():
    assert Layout().counter("excel-42") == "n8n-lock-excel-42"
    assert Layout().sidecar("excel-42") == "n8n-lock-excel-42:meta"


@pytest.mark.parametrize("tags", [False, True])
def test_no_two_scopes_share_a_key(tags):
    layout = Layout(hash_tags=tags)
    keys = list(itertools.chain.from_iterable(layout.scope_keys(scope) for scope in SCOPES))
    assert len(keys) == len(set(keys))


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_accepted_scopes_never_share_a_key(one, two):
    try:
        validate.scope(one)
        validate.scope(two)
    except InvalidInput:
        return
    if one != two:
        assert not set(Layout().scope_keys(one)) & set(Layout().scope_keys(two))


def _hash_tag(key):
    """The part of a key that Redis Cluster hashes."""
    start = key.find("{")
    end = key.find("}", start + 1)
    return key[start + 1 : end] if start >= 0 and end > start + 1 else key


@pytest.mark.parametrize("scope", SCOPES)
def test_on_a_cluster_all_keys_of_a_scope_lie_in_one_slot(scope):
    assert len({_hash_tag(key) for key in Layout("app:", hash_tags=True).scope_keys(scope)}) == 1


def test_a_scope_that_would_scatter_is_refused_on_a_cluster():
    with pytest.raises(InvalidInput, match="must not begin with '}'"):
        Layout(hash_tags=True).scope_keys("}s")


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("scope", SCOPES)
def test_the_scope_can_be_read_from_its_keys(scope, tags):
    layout = Layout("p:", hash_tags=tags)
    keys = layout.scope_keys(scope)
    assert {layout.scope_of(key) for key in keys} == {scope}


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
