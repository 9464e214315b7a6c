"""The ranges of everything a user can pass. Each refusal names the argument and what is allowed."""

from __future__ import annotations

import math
import re
import reprlib
from functools import lru_cache
from typing import Any

from .errors import InvalidInput

MAX_TTL = 366 * 86400.0
MIN_TTL = 0.05
MAX_WAIT = 366 * 86400.0
MAX_PERMITS = 1000
MIN_PER = 0.01
MAX_LIMIT = 1_000_000_000
MAX_SLIDING = 1_000_000  # each that is let through takes eight bytes
MAX_TEXT = 4096
ALGORITHMS = ("fixed-window", "sliding-window", "gcra")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@lru_cache(maxsize=4096)
def _checked_name(what: str, value: str) -> str:
    if not 1 <= len(value) <= 512:
        raise InvalidInput(f"{what} must have 1 to 512 characters, not {len(value)}.")
    if _CONTROL.search(value):
        raise InvalidInput(f"{what} must not contain control characters: {brief(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} must be valid UTF-8 text: {brief(value)}.") from None
    return value


def brief(value: Any) -> str:
    """A value as a message shows it: neither longer than a line nor on several."""
    try:
        return reprlib.repr(value).replace("\n", " ")
    except ValueError:  # a number of thousands of digits
        return f"a huge {type(value).__name__}"


def name(what: str, value: Any) -> str:
    if type(value) is not str:
        raise InvalidInput(f"{what} must be a string of 1 to 512 characters, not {brief(value)}.")
    return _checked_name(what, value)


def scope(value: Any, what: str = "scope") -> str:
    checked = name(what, value)
    if checked.endswith(":meta"):  # its counter's key would be another scope's sidecar
        raise InvalidInput(f"{what} must not end in ':meta', which names a lock's sidecar: {brief(checked)}.")
    return checked


def scopes(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, (str, bytes)):
        raise InvalidInput(f"scopes must be a list of scopes, not {brief(value)}.")
    try:
        return [scope(one) for one in value]
    except TypeError:
        raise InvalidInput(f"scopes must be a list of scopes, not {brief(value)}.") from None


def optional_text(what: str, value: Any) -> str | None:
    return None if value is None else name(what, value)


def _number(what: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(
            f"{what} must be a number of seconds from {low:g} to {high:.0f}, not {brief(value)}."
        )
    if not low <= value <= high:
        raise InvalidInput(f"{what} must be from {low:g} to {high:.0f} seconds, not {brief(value)}.")
    return float(value)


def ttl_ms(value: Any, what: str = "ttl") -> int:
    return round(_number(what, value, MIN_TTL, MAX_TTL) * 1000)


def per_ms(value: Any) -> int:
    return round(_number("per", value, MIN_PER, MAX_TTL) * 1000)


def wait(value: Any) -> float | None:
    """Seconds, or None for as long as it takes."""
    if value is None or value == math.inf:
        return None
    return _number("wait", value, 0, MAX_WAIT)


def whole(what: str, value: Any, most: int, most_is: str = "") -> int:
    if type(value) is not int or not 1 <= value <= most:
        limit = f"{most}, {most_is}" if most_is else f"{most}"
        raise InvalidInput(f"{what} must be a whole number from 1 to {limit}, not {brief(value)}.")
    return value


def permits(value: Any) -> int:
    return whole("permits", value, MAX_PERMITS)


def algorithm(value: Any) -> str:
    if value not in ALGORITHMS:
        raise InvalidInput(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {brief(value)}.")
    return str(value)


def percent(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 100:
        raise InvalidInput(f"percent must be a number from 0 to 100, not {brief(value)}.")
    return value


def text(what: str, value: Any) -> str:
    """What people read: may have several lines, and be empty."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be a string, not {brief(value)}.")
    if len(value) > MAX_TEXT:
        raise InvalidInput(f"{what} must have at most {MAX_TEXT} characters, not {len(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} must be valid UTF-8 text: {brief(value)}.") from None
    return value
