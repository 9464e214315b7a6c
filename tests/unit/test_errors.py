"""Errors cross from one process to another whole."""

from __future__ import annotations

import pickle

import pytest

from interlock import (
    Decision,
    Holder,
    InterlockError,
    InvalidInput,
    LeaseLost,
    LimitExceeded,
    LockHeld,
    NotOwner,
    Status,
    StoreUnavailable,
    WaitTimeout,
)
from interlock.errors import ClientClosed

HOLDER = Holder(lock_id="a", label="nightly", fence=7)
DECISION = Decision(allowed=False, scope="s", count=2, limit=1, remaining=0, retry_after=3.0, reset_at=4.0)
ERRORS = [
    LockHeld("s", HOLDER, 1, Status(key="s", output="loading", percent=40)),
    WaitTimeout("s", HOLDER, 1.5),
    LeaseLost("s", "a", "it expired"),
    NotOwner("s", "a", HOLDER, "release"),
    StoreUnavailable("away", maybe_done=True),
    LimitExceeded(DECISION),
    InvalidInput("no"),
    ClientClosed(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_can_be_pickled(error: InterlockError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_none_is_left_out() -> None:
    kinds, seen = [InterlockError], set()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        seen.add(kind)
    assert {type(error) for error in ERRORS} == seen - {InterlockError}


def test_records_are_compared_by_value_and_not_changed() -> None:
    assert Holder(lock_id="a", label="nightly", fence=7) == HOLDER
    assert HOLDER.replace(fence=8) != HOLDER
    assert hash(Holder(lock_id="a", label="nightly", fence=7)) == hash(HOLDER)
    assert pickle.loads(pickle.dumps(HOLDER)) == HOLDER
    with pytest.raises(AttributeError, match="can't be changed"):
        HOLDER.fence = 9  # type: ignore[misc]
    with pytest.raises(TypeError, match="wrong: scoop"):
        Holder(scoop="s")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"wrong: .*allowed"):
        Decision(scope="s")  # type: ignore[call-arg]
