"""Answers as JSON and as text for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ..lease import Lease
from ..record import Record

LEASE = (
    "acquired",
    "count",
    "scope",
    "lock_id",
    "key",
    "meta_key",
    "workflow_id",
    "workflow_name",
    "execution_id",
    "locked_at",
    "fence",
    "ttl",
    "permits",
    "label",
)


def plain(answer: Any) -> Any:
    """The contract's fields."""
    if isinstance(answer, Lease):
        return {name: getattr(answer, name) for name in LEASE}
    if isinstance(answer, Record):
        return answer.as_dict()
    if isinstance(answer, (list, tuple)):
        return [plain(one) for one in answer]
    return answer


def to_json(answer: Any) -> str:
    return json.dumps(plain(answer), ensure_ascii=False)


def printable(text: str) -> str:
    """What others wrote must not steer the terminal."""
    return "".join(c if c.isprintable() else "\ufffd" if c != "\n" else " " for c in text)


def duration(seconds: float) -> str:
    """As in `4 s`, `3 min 20 s`, `5 h 2 min`, `3 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    for unit, name, smaller, smaller_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name}" + (f" {rest} {smaller_name}" if rest else "")
    raise AssertionError


def age(at: str | None) -> str:
    """How long ago that was, by this machine's clock."""
    if not at:
        return ""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return ""
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return duration((datetime.now(UTC) - then).total_seconds())


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns that line up; on a terminal the widest gives way until a row fits a line."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if sys.stdout.isatty():
        room = os.get_terminal_size(sys.stdout.fileno()).columns - 2 * (len(widths) - 1)
        while sum(widths) > room and max(widths) > 8:
            widths[widths.index(max(widths))] -= 1
    return "\n".join(
        "  ".join(_fit(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _fit(cell: str, width: int) -> str:
    return cell.ljust(width) if len(cell) <= width else cell[: width - 1] + "…"
