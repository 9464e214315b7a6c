from __future__ import annotations

import select
import threading
import time

import pytest

from interlock.pump import Pump

from ..conftest import eventually


class Reading:
    """A read that returns when the bell rings, and counts."""

    def __init__(self):
        self.count = 0
        self.active = False

    def __call__(self, timeout, bell):
        self.count += 1
        self.active = True
        poll = select.poll()
        poll.register(bell, select.POLLIN)
        poll.poll(timeout * 1000)
        self.active = False
        return []


class Waiter:
    def __init__(self):
        self.ready = False
        self.until = time.monotonic() + 3600

    def sleep(self, pump):
        self.woke = pump.wait(self, lambda: self.ready, lambda: self.until - time.monotonic())

    def start(self, pump):
        self.thread = threading.Thread(target=self.sleep, args=(pump,))
        self.thread.start()
        return self


@pytest.fixture
def reading():
    return Reading()


@pytest.fixture
def pump(reading):
    pump = Pump(reading)
    yield pump
    pump.close()


def test_whoever_reads_for_all_can_be_woken(pump, reading):
    waiter = Waiter().start(pump)
    eventually(lambda: reading.active)
    waiter.ready = True
    pump.poke(waiter)
    waiter.thread.join(10)
    assert waiter.woke


def test_whoever_reads_for_all_learns_of_a_new_deadline(pump, reading):
    waiter = Waiter().start(pump)
    eventually(lambda: reading.active)
    waiter.until = 0
    pump.poke(waiter)
    waiter.thread.join(10)
    assert waiter.woke is False


def test_another_reads_on_when_the_reader_leaves(pump, reading):
    first = Waiter().start(pump)
    eventually(lambda: reading.active)
    second = Waiter().start(pump)
    eventually(lambda: id(second) in pump._waiting)
    first.ready = True
    pump.poke(first)
    first.thread.join(10)
    eventually(lambda: pump._reader == id(second))
    second.ready = True
    pump.poke(second)
    second.thread.join(10)


def test_a_read_that_fails_is_that_waiters_failure_and_another_reads_on():
    def fail(timeout, bell):
        raise OSError("cut")

    pump = Pump(fail)
    for _ in range(2):
        with pytest.raises(OSError, match="cut"):
            pump.wait(object(), lambda: False, lambda: 1.0)
