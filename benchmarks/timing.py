"""How a duration is measured on a machine that is never quiet.

Contenders take turns in short blocks, so that whatever else runs here slows all of them alike. What counts
is the ratio of two blocks of the same round, in the rounds that were disturbed least: one that needs more
processor time than another suffers more than its share when a third program wants the core.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

Blocks = list[list[int]]  # nanoseconds, by round


def alternate(contenders: dict[str, Callable[[], object]], rounds: int, block: int) -> Timings:
    clock = time.perf_counter_ns
    took: dict[str, Blocks] = {name: [] for name in contenders}
    names = list(contenders)
    for call in contenders.values():  # connections, caches and scripts
        for _ in range(block):
            call()
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            call = contenders[name]
            times = []
            for _ in range(block):
                start = clock()
                call()
                times.append(clock() - start)
            took[name].append(times)
    return Timings(took)


class Timings:
    """What was measured, in microseconds and ratios."""

    def __init__(self, took: Mapping[str, Blocks]) -> None:
        self._took = took
        self._medians = {name: [median(block) for block in blocks] for name, blocks in took.items()}
        self._quiet = quietest([sum(round) for round in zip(*self._medians.values(), strict=True)])

    def ratio(self, name: str, reference: str) -> float:
        """The median of the quiet rounds' ratios of medians."""
        mine, theirs = self._medians[name], self._medians[reference]
        return median(mine[turn] / theirs[turn] for turn in self._quiet)

    def ratio_of_all(self, name: str, reference: str) -> float:
        """The same, of all rounds, the disturbed ones too."""
        pairs = zip(self._medians[name], self._medians[reference], strict=True)
        return median(mine / theirs for mine, theirs in pairs)

    def p50(self, name: str) -> float:
        """Of the quiet rounds."""
        return percentile([time for turn in self._quiet for time in self._took[name][turn]], 50) / 1000

    def p99(self, name: str) -> float:
        """Of all rounds, the disturbed ones too."""
        return percentile([time for block in self._took[name] for time in block], 99) / 1000


def quietest(totals: Sequence[float]) -> list[int]:
    """The third of the rounds in which all contenders together were fastest; so it favours none of them."""
    return sorted(range(len(totals)), key=totals.__getitem__)[: max(1, len(totals) // 3)]


def percentile(values: Sequence[int], share: float) -> float:
    """The value that `share` of 100 do not exceed; always one that was measured."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * share / 100) - 1)]
