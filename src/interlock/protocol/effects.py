"""What a flow can ask for."""

from __future__ import annotations

from typing import NamedTuple

from ..room import Place
from ..stores.base import Operation


class Call(NamedTuple):
    """Carry out one operation on the store; sends its reply."""

    operation: Operation
    tracked: bool = False  # over the connection that is told when the scope is touched
    shielded: bool = False  # to be carried out although we are cancelled or interrupted meanwhile


class Listen(NamedTuple):
    """Make sure that messages for this client arrive."""


class Enter(NamedTuple):
    """Sends a `Place` in this client's waiting room; `InvalidInput` if that lock_id has one already."""

    scope: str
    lock_id: str


class Leave(NamedTuple):
    place: Place


class Await(NamedTuple):
    """Sleep until this place has to look, or until the deadline."""

    place: Place
    deadline: float


class Wake(NamedTuple):
    """Let these waiters of this client look."""

    places: list[Place]


class Sleep(NamedTuple):
    seconds: float


Effect = Call | Listen | Enter | Leave | Await | Wake | Sleep
