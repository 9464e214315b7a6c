"""Who looks at the store, and when: the rules that keep waiting cheap."""

from __future__ import annotations

import pytest

from interlock.room import HEAD_DELAY, STORM, Room
from interlock.stores.base import Queued

WINDOW = 5.0


@pytest.fixture
def room():
    return Room(WINDOW)


def looked(room, place, now, *, look_in=5000, head=True, tracked=True):
    place.tracked = tracked
    room.looked(place, Queued(None, 1, look_in, head), now)


def test_only_the_first_waiter_of_a_scope_looks(room):
    first, second = room.enter("s", "a"), room.enter("s", "b")
    looked(room, first, 100)
    looked(room, second, 100, look_in=1)
    assert first.due == 105
    assert second.due == float("inf")


def test_when_the_first_leaves_the_next_looks_at_once(room):
    first, second = room.enter("s", "a"), room.enter("s", "b")
    looked(room, first, 100)
    assert room.leave(first) is second
    assert second.due <= 100


def test_a_claim_wakes_the_one_it_is_for(room):
    first, second = room.enter("s", "a"), room.enter("s", "b")
    assert room.feed([("claim", "s", "b")], 100) == [second]
    assert second.look
    assert not first.look
    assert room.feed([("claim", "s", "gone"), ("claim", "other", "a")], 100) == []


def test_a_head_that_is_not_told_of_touches_yet_looks_to_be_told(room):
    place = room.enter("s", "a")
    assert not room.begins_look(place)
    looked(room, place, 100, tracked=False)
    assert place.due == 100
    assert room.begins_look(place)
    looked(room, place, 100.001)
    assert place.due == pytest.approx(105.001)


def test_a_touch_makes_the_head_look_once(room):
    place = room.enter("s", "a")
    looked(room, place, 100)
    assert room.feed([("touched", "s")], 102) == [place]
    assert place.due == 102
    looked(room, place, 102, tracked=False, head=False)
    assert room.feed([("touched", "s")], 103) == []


def test_a_touch_during_a_look_makes_for_another(room):
    place = room.enter("s", "a")
    looked(room, place, 100)
    room.begins_look(place)
    room.feed([("touched", "s")], 101)
    looked(room, place, 101.001)
    assert place.due == pytest.approx(101.001 + STORM)
    room.begins_look(place)
    looked(room, place, 101.03)
    assert place.due == pytest.approx(106.03)


def test_a_storm_of_touches_is_bounded(room):
    place = room.enter("s", "a")
    looked(room, place, 100)
    room.feed([("touched", "s")], 100.001)
    assert place.due > 100.01


def test_a_renewal_costs_no_look_while_the_last_is_recent(room):
    place = room.enter("s", "a")
    looked(room, place, 100, look_in=1500)
    room.feed([("renewed", "s", "3000"), ("touched", "s")], 101)
    assert place.due == 104
    room.feed([("renewed", "s", "30000")], 101)
    assert place.due == 105


def test_a_renewal_takes_the_place_of_a_beat_that_is_due_anyway(room):
    place = room.enter("s", "a")
    looked(room, place, 100)
    room.feed([("renewed", "s", "30000"), ("touched", "s")], 104.9)
    assert place.due == 104.9


def test_a_new_head_takes_its_post_a_moment_later(room):
    place = room.enter("s", "a")
    looked(room, place, 100, head=False, tracked=False)
    room.feed([("head", "s")], 101)
    assert place.due == pytest.approx(101 + HEAD_DELAY)
    assert room.begins_look(place)


def test_after_a_lost_connection_all_look(room):
    places = [room.enter("s", "a"), room.enter("s", "b"), room.enter("t", "a")]
    assert room.feed([("all",)], 100) == places
    assert all(place.look for place in places)
