"""Rate limits: may this call go on, and if not, when?"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import lru_cache
from typing import Any, Literal, TypedDict

from .. import machine, validate
from ..errors import InvalidInput
from ..model import Decision, LimitInUse
from ..stores.base import LOOK, Limit, LimitsInUse, Once, Refund, Reset, Ruling, Used
from .effects import Call, Effect, Sleep

Algorithm = Literal["fixed-window", "sliding-window", "gcra"]
FIXED: Algorithm = "fixed-window"


class LimitOptions(TypedDict, total=False):
    """What `limit` and `peek` take besides the scope, the limit and `per`."""

    algorithm: Algorithm
    cost: int
    burst: int | None


def checked(
    scope: str,
    wait: float | None,
    *,
    limit: int,
    per: float,
    algorithm: Algorithm = FIXED,
    cost: int = 1,
    burst: int | None = None,
) -> tuple[Limit, float | None]:
    """Everything that a caller passed, checked before anything is done."""
    try:
        return _checked(scope, wait, limit, per, algorithm, cost, burst)
    except TypeError:  # it can't be remembered, and so can't be right
        return _checked.__wrapped__(scope, wait, limit, per, algorithm, cost, burst)


# The same is asked again and again. Typed, as True is not the limit 1.
@lru_cache(maxsize=1024, typed=True)
def _checked(  # noqa: PLR0917
    scope: str,
    wait: float | None,
    limit: int,
    per: float,
    algorithm: Algorithm,
    cost: int,
    burst: int | None,
) -> tuple[Limit, float | None]:
    validate.name("scope", scope)
    validate.algorithm(algorithm)
    most = validate.whole(
        "limit", limit, validate.MAX_SLIDING if algorithm == "sliding-window" else validate.MAX_LIMIT
    )
    if burst is not None and algorithm != "gcra":
        raise InvalidInput(f"burst is for algorithm='gcra' only, not {algorithm}.")
    brim = most if burst is None else validate.whole("burst", burst, validate.MAX_LIMIT)
    size = validate.whole("cost", cost, brim, "the limit" if burst is None else "the burst")
    return Limit(scope, algorithm, most, validate.per_ms(per), size, brim, 0), validate.wait(wait)


def limit(ask: Limit, wait: float | None) -> Generator[Effect, Any, Decision]:
    """`wait`: how many seconds the caller would wait for its turn; it books it, and sleeps until then."""
    if wait != 0:
        ask = ask._replace(patience=round((validate.MAX_WAIT if wait is None else wait) * 1000))
    asked = machine.now() if wait != 0 else 0.0
    ruling: Ruling = yield Call(ask)
    if ruling.allowed and ruling.delay > 0:
        try:
            yield Sleep(ruling.delay)
        except GeneratorExit:
            raise
        except BaseException:  # cancelled or interrupted: somebody else may have the turn
            yield Call(Refund(ask, ruling.slot), shielded=True)
            raise
    return _decision(ask, ruling, machine.now() - asked if ruling.delay > 0 and ruling.allowed else 0.0)


def peek(ask: Limit) -> Generator[Effect, Any, Decision]:
    ruling: Ruling = yield Call(ask._replace(patience=LOOK))
    return _decision(ask, ruling, 0.0)


def _decision(ask: Limit, ruling: Ruling, waited: float) -> Decision:
    return Decision(
        allowed=ruling.allowed,
        scope=ask.scope,
        count=ruling.used,
        limit=ask.limit,
        remaining=ruling.remaining,
        retry_after=0.0 if ruling.allowed else ruling.delay,
        reset_at=ruling.reset_at,
        waited=waited,
    )


def reset(scope: str, per: float, algorithm: Algorithm) -> Generator[Effect, Any, bool]:
    """Answers whether anything was forgotten."""
    validate.name("scope", scope)
    validate.algorithm(algorithm)
    forgotten: bool = yield Call(Reset(scope, algorithm, validate.per_ms(per)))
    return forgotten


def in_use() -> Generator[Effect, Any, list[LimitInUse]]:
    found: list[LimitInUse] = []
    for name in sorted((yield Call(LimitsInUse()))):
        limit: LimitInUse | None = yield Call(Used(*name))
        if limit is not None:
            found.append(limit)
    return found


def once(key: str, per: float) -> Generator[Effect, Any, bool]:
    validate.name("key", key)
    first: bool = yield Call(Once(key, os.urandom(8).hex(), validate.per_ms(per)))
    return first
