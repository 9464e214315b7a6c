"""Ctrl-C at every single step on the way to a lease leaves nothing behind."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import interlock
from interlock import Interlock
from interlock.client import Client

pytestmark = pytest.mark.slow

PACKAGE = str(Path(interlock.__file__).parent)
BLOCKED = 0.3  # seconds after which a waiter has taken all its steps and sleeps


class Interruption(BaseException):
    """As KeyboardInterrupt, which pytest would take for itself."""


def interrupt(number, frame):
    sys.settrace(None)  # all steps are taken: once is enough
    raise Interruption


class AtStep:
    """Raises an Interruption at the n-th line of the package's that is run; tells whether it came to that.

    When the lease is there, only plain returns follow, between which no signal comes through.
    """

    def __init__(self, step):
        self._left = step
        self.reached = False

    def __enter__(self):
        sys.settrace(self._trace)

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "return" and frame.f_code is Client._take.__code__:
            sys.settrace(None)
        if event == "line":
            self._left -= 1
            if self._left == 0:
                sys.settrace(None)
                self.reached = True
                raise Interruption
        return self._trace


@pytest.fixture
def clients(store):
    with Interlock(store.url) as one, Interlock(store.url) as other:
        one.acquire("warm-up").release()
        other.acquire("warm-up").release()
        yield one, other


def interrupted(act, step):
    """Act, but be interrupted at this step; answers whether there was such a step."""
    at_step = AtStep(step)
    with pytest.raises(Interruption), at_step:
        act()
    return at_step.reached


@pytest.mark.parametrize(
    "take",
    [lambda il: il.acquire("s", ttl=60, renew=True), lambda il: il.status.begin("s", timeout=60)],
    ids=["acquire", "begin"],
)
def test_of_a_free_scope(clients, take):
    il, other = clients

    def act():
        take(il)
        raise Interruption  # it has got that far

    step = 1
    while interrupted(act, step):
        assert not other.show("s").held, f"interrupted at step {step}, it left a lease"
        step += 1
    assert step > 50
    assert other.show("s").held


def test_of_waiting(clients):
    il, other = clients
    other.acquire("s", ttl=600)
    before = signal.signal(signal.SIGALRM, interrupt)

    def act():
        signal.setitimer(signal.ITIMER_REAL, BLOCKED)
        try:
            il.acquire("s", wait=60)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    try:
        step = 1
        while interrupted(act, step):
            assert other.show("s").waiting == 0, f"interrupted at step {step}, it left its place in line"
            step += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert step > 100
    assert other.show("s").waiting == 0
