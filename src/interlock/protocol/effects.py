"""What a flow can ask for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..audience import Seat
from ..room import Place
from ..stores.base import Operation

if TYPE_CHECKING:
    from .leases import Won


class Call(NamedTuple):
    """Carry out one operation on the store; sends its reply."""

    operation: Operation
    tracked: bool = False  # over the connection that is told when the scope is touched
    shielded: bool = False  # to be carried out although we are cancelled or interrupted meanwhile


class Listen(NamedTuple):
    """Make sure that messages for this client arrive, all events among them if that is wanted."""

    events: bool = False


class Enter(NamedTuple):
    """Sends a `Place` in this client's waiting room; `InvalidInput` if that lock_id has one already."""

    scope: str
    lock_id: str


class Leave(NamedTuple):
    place: Place


class Await(NamedTuple):
    """Sleep until this place has to look, or until the deadline."""

    place: Place | Seat
    deadline: float


class Sit(NamedTuple):
    """Sends the seat back, now that it is told of what happens."""

    seat: Seat


class Rise(NamedTuple):
    """The end of that; wakes whoever sits there."""

    seat: Seat


class Wake(NamedTuple):
    """Let these waiters of this client look."""

    places: list[Place]


class Hold(NamedTuple):
    """Sends the lease, now that it is renewed and its loss is told, as far as that was asked for."""

    won: Won
    on_lost: Callable[[Any], object] | None


class Sleep(NamedTuple):
    seconds: float


Effect = Call | Listen | Enter | Leave | Sit | Rise | Await | Wake | Hold | Sleep


def sit(seat: Seat) -> Generator[Effect, Any, None]:
    yield Sit(seat)


def rise(seat: Seat) -> Generator[Effect, Any, None]:
    yield Rise(seat)
