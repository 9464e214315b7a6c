"""What an operation does, step by step, without doing any of it.

Each operation is a generator, a flow, that yields what it needs (an effect) and is sent the result.
`threads` and `tasks` run them, so that there is one protocol.
"""

from .effects import Await, Call, Effect, Enter, Leave, Listen, Sleep, Wake
from .leases import (
    DEFAULT_TTL,
    AcquireOptions,
    Request,
    Won,
    acquire,
    break_,
    give_back,
    locks,
    opening,
    release,
    renew,
    request,
    show,
)

__all__ = [
    "DEFAULT_TTL",
    "AcquireOptions",
    "Await",
    "Call",
    "Effect",
    "Enter",
    "Leave",
    "Listen",
    "Request",
    "Sleep",
    "Wake",
    "Won",
    "acquire",
    "break_",
    "give_back",
    "locks",
    "opening",
    "release",
    "renew",
    "request",
    "show",
]
