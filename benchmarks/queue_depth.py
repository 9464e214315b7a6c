"""What the length of the queue costs: the same four operations before 10 and before 10,000 waiters.

One cycle leaves the queue as long as it was: somebody joins at the end, somebody tries without waiting, the
holder releases (which hands over to the head), the head claims. The waiters are one listening client's.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from statistics import median

import redis

from .bench import Bench
from .cores import apart
from .tables import Row, Table, at_most
from .timing import Blocks, Timings
from .wire import Speaker, Wire, pack

SHALLOW, DEEP = 10, 10_000
ROUNDS = 150
BLOCK = 10
STEPS = {
    "queue": "acquire that queues",
    "try": "fail-fast try",
    "release": "release with hand-over",
    "claim": "claim of what was handed over",
}


class Line:
    """A scope that is held, and its waiters."""

    def __init__(self, port: int, scope: str, depth: int) -> None:
        self.scope, self.depth = scope, depth
        client = uuid.uuid4().hex
        self._speaker, self._trier = Speaker(client), Speaker()
        self._wire, self._ear = Wire(port), Wire(port)
        self._ear.command("SUBSCRIBE", self._speaker.wake_channel)
        self.took: dict[str, Blocks] = {step: [] for step in STEPS}
        self._waiting: deque[str] = deque()
        self._holder = str(uuid.uuid4())
        assert self._wire.call(self._acquire(self._holder))[0] == 1
        while len(self._waiting) < depth:
            joining = [str(uuid.uuid4()) for _ in range(min(1000, depth - len(self._waiting)))]
            self._wire.call_many([self._acquire(lock_id) for lock_id in joining])
            self._waiting.extend(joining)

    def _acquire(self, lock_id: str) -> bytes:
        return pack(self._speaker.acquire(self.scope, lock_id, queue=True))

    def _timed(self, step: str, packet: bytes, answer: int) -> None:
        start = time.perf_counter_ns()
        reply = self._wire.call(packet)
        self.took[step][-1].append(time.perf_counter_ns() - start)
        assert reply[0] == answer, (step, reply)

    def cycle(self) -> None:
        newcomer, heir = str(uuid.uuid4()), self._waiting.popleft()
        self._timed("queue", self._acquire(newcomer), 2)
        self._timed("try", pack(self._trier.acquire(self.scope, newcomer)), 0)
        self._timed("release", pack(self._speaker.release(self.scope, self._holder)), 1)
        self._hear("claim", self.scope, heir)
        self._timed("claim", self._acquire(heir), 1)
        self._hear("head", self.scope)
        self._holder = heir
        self._waiting.append(newcomer)

    def _hear(self, *words: str) -> None:
        heard = self._ear.reply()[2].decode().split("\n")
        assert heard == list(words), heard

    def block(self) -> None:
        for blocks in self.took.values():
            blocks.append([])
        for _ in range(BLOCK):
            self.cycle()

    def forget_times(self) -> None:
        self.took = {step: [] for step in STEPS}

    def close(self) -> None:
        self._wire.close()
        self._ear.close()


def _server_us(client: redis.Redis, line: Line, cycles: int) -> float:
    """What the server itself spends on one cycle."""
    client.config_resetstat()
    line.forget_times()
    for _ in range(cycles // BLOCK):
        line.block()
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec"]) / cycles


def measure(bench: Bench) -> Table:
    wire = Wire(bench.redis.port)
    wire.load_scripts()
    wire.close()
    shallow = Line(bench.redis.port, "shallow", SHALLOW)
    deep = Line(bench.redis.port, "deep", DEEP)
    order = [shallow, deep]
    with apart(bench.redis.pid):
        for line in order:
            line.block()
            line.forget_times()
        for _ in range(ROUNDS):
            order.reverse()
            for line in order:
                line.block()
        timings = Timings(
            {f"{step}, {line.depth}": line.took[step] for line in (shallow, deep) for step in STEPS}
        )
        with redis.Redis.from_url(bench.redis.url) as client:
            spent = [
                (_server_us(client, shallow, BLOCK * 10), _server_us(client, deep, BLOCK * 10))
                for _ in range(10)
            ]
    rows = []
    for step, words in STEPS.items():
        few, many = f"{step}, {SHALLOW}", f"{step}, {DEEP}"
        grown = timings.ratio(many, few)
        rows += [
            Row(f"{words}, {SHALLOW} waiting, p50", timings.p50(few), "µs", 1.0),
            Row(
                f"{words}, {DEEP:,} waiting, p50",
                timings.p50(many),
                "µs",
                grown,
                at_most(grown, 1.5, "times"),
            ),
            Row(f"{words}, {DEEP:,} waiting, p99", timings.p99(many), "µs"),
        ]
    few_us, many_us = (median(pair[side] for pair in spent) for side in (0, 1))
    grown = median(many / few for few, many in spent)
    rows += [
        Row(f"all four inside the server, {SHALLOW} waiting", few_us, "µs", 1.0),
        Row(f"all four inside the server, {DEEP:,} waiting", many_us, "µs", grown),
    ]
    for line in (shallow, deep):
        line.close()
    return Table(f"5. The queue's length: {DEEP:,} waiters and {SHALLOW}", f"{SHALLOW} waiting", rows)
