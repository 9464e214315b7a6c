"""The protocol without a store: what it asks for, in which order, and how it backs out."""

from __future__ import annotations

import pytest

from interlock import LockHeld, StoreUnavailable, WaitTimeout, machine
from interlock.model import Holder
from interlock.protocol import leases
from interlock.protocol.effects import Await, Call, Enter, Hold, Leave, Listen, Sleep
from interlock.room import Room
from interlock.stores.base import Done, Granted, Queued, Refused, Release

GRANT = Granted(7, "2026-01-01T00:00:00.000Z", 1)
HELD = Refused(Holder(label="somebody"), 11, 1)


@pytest.fixture
def room():
    return Room(5.0)


class Play:
    """Steps through a flow and answers as a driver would."""

    def __init__(self, room, wait=None, listening=False):
        self.room = room
        request = leases.request("s", renews=True, wait=wait, lock_id="me")
        self.flow = leases.acquire(request, room, listening)
        self.asked = next(self.flow)

    def answer(self, value=None):
        if isinstance(self.asked, Enter):
            value = self.room.enter(self.asked.scope, self.asked.lock_id)
        if isinstance(self.asked, Leave):
            self.room.leave(self.asked.place)
        self.asked = self.flow.send(value)
        return self.asked

    def fail(self, error):
        self.asked = self.flow.throw(error)
        return self.asked

    def queue_up(self):
        self.answer(HELD)
        self.answer()
        self.answer()
        assert isinstance(self.asked, Call)
        assert self.asked.operation.queue
        return self.answer(Queued(HELD.holder, 11, 5000, head=True, forgotten=True))


def test_a_free_scope_takes_one_operation(room):
    play = Play(room)
    assert play.asked.operation.queue is False
    assert play.answer(GRANT).won.grant == GRANT
    with pytest.raises(StopIteration) as done:
        play.answer("the lease")
    assert done.value.value == "the lease"


def test_a_lease_that_cannot_be_held_is_given_back(room):
    play = Play(room)
    assert isinstance(play.answer(GRANT), Hold)
    assert play.fail(KeyboardInterrupt()) == Call(Release("s", "me"), shielded=True)
    with pytest.raises(KeyboardInterrupt):
        play.answer(Done())


def test_a_waiter_sits_down_before_its_turn_can_come(room):
    play = Play(room)
    assert isinstance(play.answer(HELD), Enter)
    assert isinstance(play.answer(), Listen)
    assert play.answer().operation.queue
    listening = Play(room=Room(5.0), listening=True)
    assert isinstance(listening.asked, Enter)
    assert listening.answer().operation.queue


def test_whoever_is_refused_and_then_waits_keeps_the_moment_of_arrival(room):
    play = Play(room)
    play.answer(HELD)
    play.answer()
    assert play.answer().operation.place == HELD.place


def test_a_waiter_keeps_its_place_when_it_looks_again(room):
    play = Play(room)
    assert isinstance(play.queue_up(), Await)
    play.answer()
    assert play.answer().operation.place == 11


def test_a_head_looks_so_that_it_is_told_of_touches(room):
    play = Play(room)
    play.queue_up()
    play.answer()
    assert play.answer().tracked


def test_whoever_was_forgotten_sends_all_the_others_to_take_their_places_again(room):
    play = Play(room)
    assert isinstance(play.queue_up(), Await), "a first place is no lost place"
    other = room.enter("s", "other")
    play.answer()
    play.answer()
    wake = play.answer(Queued(HELD.holder, 11, 5000, head=True, forgotten=True))
    assert other in wake.places
    assert other.look
    assert isinstance(play.answer(), Await)


def test_failing_fast_leaves_nothing_to_take_back(room):
    with pytest.raises(LockHeld):
        Play(room, wait=0).answer(HELD)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), ValueError()])
def test_an_interrupted_waiter_takes_everything_back_before_it_leaves(room, interruption):
    play = Play(room)
    play.queue_up()
    assert play.fail(interruption) == Call(Release("s", "me"), shielded=True)
    assert isinstance(play.answer(Done()), Leave)
    with pytest.raises(type(interruption)):
        play.answer()
    assert not room.is_waiting("s")


def test_what_takes_a_look_back_travels_behind_it(room):
    play = Play(room)
    play.queue_up()
    play.answer()
    assert play.answer().tracked
    assert play.fail(KeyboardInterrupt()) == Call(Release("s", "me"), tracked=True, shielded=True)
    play.answer(Done())
    with pytest.raises(KeyboardInterrupt):
        play.answer()


def test_a_wait_that_is_over_takes_everything_back(room):
    play = Play(room, wait=0.05)
    play.queue_up()
    while machine.now() < play.asked.deadline:
        pass
    assert play.answer().operation == Release("s", "me")
    assert isinstance(play.answer(Done()), Leave)
    with pytest.raises(WaitTimeout, match="somebody"):
        play.answer()


def test_whoever_is_in_line_outlives_an_outage(room):
    play = Play(room)
    play.queue_up()
    play.answer()
    play.answer()
    pauses = []
    for _ in range(8):
        assert isinstance(play.fail(StoreUnavailable("away")), Sleep)
        pauses.append(play.asked.seconds)
        assert isinstance(play.answer(), Listen)
        assert play.answer().operation.place == 11
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1.0


def test_a_newcomer_is_told_of_an_outage_at_once(room):
    with pytest.raises(StoreUnavailable):
        Play(room).fail(StoreUnavailable("away"))


def test_whoever_may_be_in_line_holds_on_to_it(room):
    play = Play(room, listening=True)
    play.answer()
    assert isinstance(play.fail(StoreUnavailable("away", maybe_done=True)), Listen)
    play.answer()
    assert isinstance(play.fail(StoreUnavailable("still away")), Sleep)


def test_a_lost_answer_is_taken_back(room):
    play = Play(room)
    assert play.fail(StoreUnavailable("away", maybe_done=True)).operation == Release("s", "me")
    with pytest.raises(StoreUnavailable):
        play.answer(Done())


def test_a_place_belongs_to_one_lock_id(room):
    place = room.enter("s", "me")
    with pytest.raises(ValueError, match="already waits"):
        Play(room)
    room.leave(place)
    Play(room)


def test_whoever_finds_its_place_taken_in_the_same_moment_takes_nothing_back(room):
    play = Play(room)
    assert isinstance(play.answer(HELD), Enter)
    room.enter("s", "me")
    with pytest.raises(ValueError, match="already waits"):
        play.fail(room.taken("s", "me"))
