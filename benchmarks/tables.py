"""What a benchmark answers with: rows of figures, some of them with a target."""

from __future__ import annotations

from typing import Any, NamedTuple


class Target(NamedTuple):
    words: str
    met: bool


def at_most(value: float, limit: float, of: str) -> Target:
    return Target(f"at most {limit:g} {of}", value <= limit)


def at_least(value: float, limit: float, of: str) -> Target:
    return Target(f"at least {limit:g} {of}", value >= limit)


class Row(NamedTuple):
    figure: str
    value: float
    unit: str
    ratio: float | None = None
    target: Target | None = None

    def cells(self) -> tuple[str, ...]:
        digits = 0 if self.value == int(self.value) or abs(self.value) >= 1000 else 3 if self.value < 1 else 1
        if self.unit == "times" and self.value != int(self.value):
            digits = 2
        return (
            self.figure,
            f"{self.value:,.{digits}f} {self.unit}",
            "" if self.ratio is None else f"{self.ratio:.2f}",
            self.target.words if self.target else "",
            "" if self.target is None else "met" if self.target.met else "NOT MET",
        )

    def as_json(self) -> dict[str, Any]:
        words, met = self.target or (None, None)
        return {**self._asdict(), "target": words, "met": met}


class Table(NamedTuple):
    title: str
    reference: str  # what the ratios are ratios to
    rows: list[Row]

    def text(self) -> str:
        lines = [("", "figure", f"to {self.reference}" if self.reference else "", "target", "")]
        lines += [row.cells() for row in self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(5)]
        shown = [self.title, ""]
        for line in lines:
            cells = [line[0].ljust(widths[0]), line[1].rjust(widths[1]), line[2].rjust(widths[2])]
            shown.append("  ".join([*cells, line[3].ljust(widths[3]), line[4]]).rstrip())
            if line is lines[0]:
                shown.append("-" * (sum(widths) + 8))
        return "\n".join(shown)

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "reference": self.reference,
            "rows": [row.as_json() for row in self.rows],
        }
