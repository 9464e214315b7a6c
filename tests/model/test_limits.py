"""Random callers of a rate limit: what was let through, at which moments, and what was given back.

The moments are the store's own, to the microsecond, so that no clock of the test's decides.
`INTERLOCK_MODEL_EXAMPLES=2000 pytest tests/model --timeout=0` looks longer.
"""

from __future__ import annotations

import itertools
import os
import time
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.stores import configure
from interlock.stores.base import LOOK, Limit, Refund

EXAMPLES = int(os.environ.get("INTERLOCK_MODEL_EXAMPLES", "40"))
PER = 20  # ms
_numbers = itertools.count()


class Pass(NamedTuple):
    slot: int  # µs
    cost: int


class Ask(NamedTuple):
    cost: int
    patience: int  # ms


class GiveUp(NamedTuple):
    which: int


class Rest(NamedTuple):
    ms: int


STEPS = st.lists(
    st.one_of(
        st.builds(Ask, st.sampled_from((1, 1, 1, 2, 3)), st.sampled_from((0, 10, 200, 200, 200))),
        st.builds(GiveUp, st.integers(0, 50)),
        st.builds(GiveUp, st.integers(0, 50)),
        st.builds(Rest, st.sampled_from((1, 3, 7, 15))),
    ),
    min_size=10,
    max_size=60,
)


def sliding(passes: list[Pass], limit: int, burst: int) -> None:
    for first in passes:
        span = [p for p in passes if first.slot <= p.slot <= first.slot + PER * 1000]
        assert sum(p.cost for p in span) <= limit, f"too many from {first.slot} on"


def fixed(passes: list[Pass], limit: int, burst: int) -> None:
    windows: dict[int, int] = {}
    for slot, cost in passes:
        number = slot // 1000 // PER
        windows[number] = windows.get(number, 0) + cost
    assert all(used <= limit for used in windows.values())


def gcra(passes: list[Pass], limit: int, burst: int) -> None:
    unit = PER * 1000 / limit
    for i, first in enumerate(passes):
        for j in range(i, len(passes)):
            used = sum(p.cost for p in passes[i : j + 1])
            assert used <= burst + (passes[j].slot - first.slot) / unit + 0.001


KEEPS_TO = {"sliding-window": sliding, "fixed-window": fixed, "gcra": gcra}


@pytest.fixture
def open_store(store: Any) -> Any:
    opened = configure(store.url).open()
    yield opened
    opened.close()


@pytest.mark.parametrize("algorithm", KEEPS_TO)
def test_whatever_callers_do_the_limit_holds(open_store: Any, algorithm: str) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize="INTERLOCK_MODEL_EXAMPLES" not in os.environ,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(steps=STEPS, limit=st.integers(3, 6), burst=st.integers(3, 6))
    def any_history(steps: list[Any], limit: int, burst: int) -> None:
        brim = burst if algorithm == "gcra" else limit
        run_history(open_store, algorithm, steps, limit, brim)

    any_history()


def run_history(store: Any, algorithm: str, steps: list[Any], limit: int, burst: int) -> None:
    scope = f"limit-{next(_numbers)}"
    passes: list[Pass] = []
    booked: list[tuple[Limit, Pass]] = []

    def turn(slot: int) -> int:
        """Within a window there is no order: what is left of it is anybody's."""
        return slot // 1000 // PER if algorithm == "fixed-window" else slot

    for step in steps:
        if isinstance(step, Rest):
            time.sleep(step.ms / 1000)
        elif isinstance(step, GiveUp):
            if booked:
                ask, given_up = booked.pop(step.which % len(booked))
                if store.call(Refund(ask, given_up.slot)):
                    passes.remove(given_up)
        else:
            ask = Limit(scope, algorithm, limit, PER, step.cost, burst, step.patience)
            ruling = store.call(ask)
            assert ruling.allowed == (ruling.used <= burst) or ruling.delay > 0
            assert ruling.delay >= 0
            if not ruling.allowed:
                assert ruling.delay * 1000 > step.patience
                continue
            assert ruling.delay * 1000 <= step.patience + 0.001
            passes.append(Pass(ruling.slot, step.cost))
            if ruling.delay > 0:
                booked.append((ask, passes[-1]))
            elif passes[:-1]:
                still_to_come = [p.slot for _, p in booked if turn(p.slot) > turn(ruling.slot)]
                assert not still_to_come, "overtook somebody who waits"
    passes.sort()
    KEEPS_TO[algorithm](passes, limit, burst)
    become_free(store, algorithm, scope, limit, burst)


def become_free(store: Any, algorithm: str, scope: str, limit: int, burst: int) -> None:
    """When it says that all of it is free again, it is."""
    ask = Limit(scope, algorithm, limit, PER, 1, burst, LOOK)
    time.sleep(max(0.0, store.call(ask).reset_at - time.time()) + 0.001)
    assert store.call(ask._replace(cost=burst, patience=0)).allowed
