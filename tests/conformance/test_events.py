"""The stream of events, on every store, for threads and tasks."""

from __future__ import annotations

import threading

import pytest

from interlock import LockHeld, audience
from interlock.stores.sqlite import board

from ..conftest import collecting, eventually
from ..servers import redis_binaries


def names(events, scope=None):
    return [event.event for event in events if scope in (None, event.scope)]


def test_a_lease_is_told_from_its_beginning_to_its_end(il, connect, store):
    other = connect(store.url)
    with collecting(il.events()) as events:
        lease = other.acquire("excel-42", execution_id="77", workflow_name="Import", label="nightly")
        lease.progress("loading", percent=40, message="page 4")
        lease.release()
        eventually(lambda: len(events) == 3)
    acquired, progress, released = events
    assert names(events) == ["acquired", "progress", "released"]
    for event in (acquired, progress, released):
        assert event.scope == "excel-42"
        assert event.at.endswith("Z")
        assert (event.holder.lock_id, event.holder.execution_id) == (lease.lock_id, "77")
        assert event.holder.workflow_name == "Import"
    assert acquired.fence == released.fence == lease.fence
    assert (progress.status.output, progress.status.percent) == ("loading", 40)


def test_waiting_is_told_and_handing_over(il, connect, store):
    other = connect(store.url)
    with collecting(il.events()) as events:
        first = other.acquire("s")
        thread = threading.Thread(target=lambda: other.acquire("s", wait=30, label="next").release())
        thread.start()
        eventually(lambda: "queued" in names(events))
        first.release()
        thread.join(10)
        eventually(lambda: names(events)[-1] == "released" and len(events) == 5)
    assert names(events) == ["acquired", "queued", "released", "handed_over", "released"]
    assert events[1].holder.label == "next"
    assert events[3].holder.label == "next"
    assert events[3].fence > events[0].fence


def test_giving_up_and_being_refused_are_told(il, connect, store):
    other = connect(store.url)
    holder = other.acquire("s")
    with collecting(il.events()) as events:
        with pytest.raises(LockHeld):
            other.acquire("s", wait=0, label="impatient")
        with pytest.raises(TimeoutError):
            other.acquire("s", wait=0.05, label="patient")
        eventually(lambda: len(events) >= 3)
    assert names(events) == ["denied", "queued", "left"]
    assert [event.holder.label for event in events] == ["impatient", "patient", "patient"]
    holder.release()


def test_breaking_and_the_loss_are_told(il, connect, store):
    other = connect(store.url)
    lease = other.acquire("s")
    with collecting(il.events()) as events:
        il.break_("s")
        with pytest.raises(Exception, match="lost"):
            lease.renew()
        eventually(lambda: len(events) == 2)
    assert names(events) == ["broken", "lost"]
    assert [event.holder.lock_id for event in events] == [lease.lock_id] * 2
    assert events[1].fence == lease.fence


@pytest.mark.parametrize("permits", [1, 2])
def test_an_expiry_is_told_although_nobody_asks_for_the_scope(il, connect, store, permits):
    other = connect(store.url)
    with collecting(il.events()) as events:
        other.acquire("s", ttl=0.2, permits=permits)
        eventually(lambda: "expired" in names(events))
    assert names(events) == ["acquired", "expired"]


def test_the_expiry_of_a_lease_that_was_there_before_is_told_too(il, connect, store):
    connect(store.url).acquire("s", ttl=0.5)
    with collecting(il.events()) as events:
        eventually(lambda: "expired" in names(events, "s"))


def test_a_renewed_lease_is_not_told_to_have_expired(il, connect, store):
    other = connect(store.url)
    with collecting(il.events()) as events:
        lease = other.acquire("s", ttl=3)
        for _ in range(5):
            lease.renew(ttl=3)
            threading.Event().wait(0.8)
        lease.release()
        eventually(lambda: "released" in names(events))
    assert names(events) == ["acquired", "released"]


def test_a_refusal_by_a_limit_is_told(il):
    with collecting(il.events()) as events:
        for _ in range(2):
            il.limit("api", limit=1, per=3600)
        eventually(lambda: events)
    assert names(events) == ["denied"]
    assert (events[0].scope, events[0].holder) == ("api", None)


def test_a_status_is_told_and_its_end(il):
    with collecting(il.events()) as events:
        il.status.set("import", "working", execution_id="77")
        il.status.unset("import")
        eventually(lambda: len(events) == 2)
    assert names(events) == ["progress", "progress"]
    assert events[0].status.output == "working"
    assert events[0].holder.execution_id == "77"
    assert events[1].status.output is None


def test_scopes_and_messages_of_any_text_are_told(il):
    scope = 'ä "進" \\ {}'
    with collecting(il.events()) as events:
        with il.lock(scope, label='a "label"\\') as lease:
            lease.progress('läuft "進"', message="one\ntwo")
        eventually(lambda: len(events) == 3)
    assert {event.scope for event in events} == {scope}
    assert events[0].holder.label == 'a "label"\\'
    assert events[1].status.message == "one\ntwo"


def test_all_who_follow_are_told(il, connect, store):
    other = connect(store.url)
    with (
        collecting(il.events()) as one,
        collecting(il.events()) as two,
        collecting(other.events()) as three,
    ):
        il.acquire("s").release()
        for events in (one, two, three):
            eventually(lambda events=events: names(events) == ["acquired", "released"])


def test_what_happened_before_is_not_told(il):
    il.acquire("s").release()
    with collecting(il.events()) as events:
        il.acquire("t").release()
        eventually(lambda: len(events) == 2)
    assert {event.scope for event in events} == {"t"}


def test_whoever_falls_behind_loses_the_oldest_and_is_told_how_many(il, connect, store, monkeypatch):
    for module in (audience, board):
        monkeypatch.setattr(module, "KEPT", 100)
    other = connect(store.url)
    with il.events() as events:
        for number in range(150):
            other.acquire(f"s-{number}").release()
        il.status.set("last", "one")
        seen = []
        while not seen or seen[-1].scope != "last":
            seen.append(next(events))
    missed = [event.count for event in seen if event.event == "missed"]
    assert missed
    assert len(seen) - len(missed) + sum(missed) == 2 * 150 + 1


def test_nothing_is_written_when_nobody_follows(store, connect):
    """Off the hot path, and no memory for those who never come."""
    il = connect(store.url)
    il.acquire("s").release()
    if hasattr(store, "file"):
        import sqlite3

        with sqlite3.connect(store.file) as db:
            assert db.execute("SELECT count(*) FROM events").fetchone() == (0,)
    else:
        with store.client() as admin:
            before = admin.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"]
            il.acquire("s").release()
            assert admin.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"] == before


@pytest.mark.parametrize("version", list(redis_binaries()))
def test_a_follower_whose_connection_broke_is_told_that_it_missed_some(clean_redis, connect, version):
    server = clean_redis(version)
    il = connect(server.url)
    with server.client() as admin, collecting(il.events()) as events:
        il.acquire("s").release()
        eventually(lambda: len(events) == 2)
        admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        eventually(lambda: "missed" in names(events))
        assert events[-1].count is None

        def goes_on():
            il.acquire("t").release()
            return "released" in names(events, "t")

        eventually(goes_on)


@pytest.mark.parametrize("version", list(redis_binaries()))
def test_somebody_elses_words_on_the_channel_are_left_out(clean_redis, connect, version):
    server = clean_redis(version)
    il = connect(server.url)
    with server.client() as stranger, collecting(il.events()) as events:
        for words in (
            "hello",
            "{}",
            "[1]",
            '{"event":"x"}',
            '{"event":1,"scope":2,"at":1e400}',
            "\x00\xff",
            "null",
        ):
            stranger.publish("interlock:events", words)
        stranger.publish("interlock:events", '{"event":"progress","scope":"s","at":1,"record":"[1]"}')
        stranger.publish("interlock:events", '{"event":"progress","scope":"s","at":1,"record":7}')
        il.acquire("s").release()
        eventually(lambda: "released" in names(events))
    assert names(events)[-2:] == ["acquired", "released"]
