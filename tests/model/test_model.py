"""Random histories on one scope, against the model: Interlock's clients, and n8n's own commands on Redis.

`INTERLOCK_MODEL_EXAMPLES=2000 pytest tests/model --timeout=0` looks longer, and elsewhere at each run.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from interlock.model import Holder, ScopeInfo
from interlock.protocol import leases
from interlock.stores import configure
from interlock.stores.base import (
    Acquire,
    Break,
    Done,
    Gone,
    Granted,
    Queued,
    Refused,
    Release,
    Renew,
    Scopes,
    Show,
)
from interlock.stores.redis.layout import Layout

from .model import Foreign, Lease, Scope, Wish

EXAMPLES = int(os.environ.get("INTERLOCK_MODEL_EXAMPLES", "0"))
CLIENTS = 3
LOCK_IDS = ("a", "b", "c", "d", 'e"\\é', "f")
TTLS = (1_000_000, 2_000_000, 3_000_000)  # ms, far apart and never reached
HOUR = 3_600_000
GRACE = 0.3
SLACK = 50  # ms by which two clocks may differ, and a busy machine be late
N8N_ID = "n8n-execution-7"

_numbers = itertools.count()


class Moment(NamedTuple):
    """When something happened, as closely as it can be told from outside the store."""

    before: float
    after: float


class Backend:
    """A running store, and clients of it that live from one example to the next."""

    def __init__(self, url: str, window: float) -> None:
        self.window = window
        self.url = f"{url}?liveness={window}&orphan_grace={GRACE}"
        self.foreign: redis.Redis | None = None
        if url.startswith("redis"):
            self.foreign = redis.Redis.from_url(url, decode_responses=True)
        self.stores: dict[int, Any] = {}
        self.bell, self._ringer = os.pipe()  # what would interrupt a reader; nobody rings it
        self._names = itertools.count()
        self.clients = [self.newcomer() for _ in range(CLIENTS)]

    def newcomer(self) -> int:
        name = next(self._names)
        self.stores[name] = configure(self.url).open()
        self.stores[name].listen()
        return name

    def dismiss(self, client: int) -> None:
        store = self.stores.pop(client)
        store.close()
        if self.foreign is not None:  # it reads the farewell only when it comes to it
            expected = len(self.stores)
            while len(self.foreign.pubsub_channels("*")) > expected:
                time.sleep(0.001)

    def close(self) -> None:
        for store in self.stores.values():
            store.close()
        if self.foreign is not None:
            self.foreign.close()
        os.close(self.bell)
        os.close(self._ringer)


class ScopeMachine(RuleBasedStateMachine):
    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self.backend = backend
        self.n8n = backend.foreign
        # Beside silences it would be too much: a contender may keep alive what nobody claims.
        self.n8n_writes = self.n8n is not None and backend.window > 10
        self.scope = f"model-{next(_numbers)}"
        self.model = Scope(skips_the_deaf=self.n8n is not None)
        self.layout = Layout()
        self.counter, self.sidecar = self.layout.counter(self.scope), self.layout.sidecar(self.scope)
        self.places: dict[str, int] = {}
        self.foreign_record = ""
        self.watched = False
        self.usual_permits = 1
        self.silences = 0
        self.waited = False
        if self.n8n is not None:
            self.n8n.flushdb()

    @initialize(
        permits=st.sampled_from((1, 1, 2, 3)),
        scene=st.lists(st.sampled_from((1, 2, 2, 3)), max_size=5),
        watched=st.booleans(),
    )
    def begin(self, permits: int, scene: list[int], watched: bool) -> None:
        """`watched`: show is asked after every step. It clears away, so not in every example."""
        self.usual_permits, self.watched = permits, watched
        self.assemble(scene)

    def assemble(self, permits: list[int]) -> None:
        """Some hold, and some wait."""
        for number, wanted in enumerate(permits):
            lock_id = LOCK_IDS[number]
            self.acquire_as(
                self.client(number), lock_id, permits=wanted, ttl=TTLS[0], queue=True, place=False
            )

    # ------------------------------------------------------------------ doing

    def client(self, number: int) -> int:
        return self.backend.clients[number % CLIENTS]

    def do(self, client: int, operation: Any) -> tuple[Any, Moment]:
        foreign, queue = self.model.foreign, self.model.queue
        looks = isinstance(operation, Acquire) or (  # as does whoever hands over
            isinstance(operation, Release) and len(queue) > 1 and queue[0].lock_id == operation.lock_id
        )
        begun = time.monotonic()
        reply = self.backend.stores[client].call(operation)
        at = Moment(begun, time.monotonic())
        if foreign is not None and not isinstance(operation, Break):
            self._settle_foreign(foreign, looks, at)
        return reply, at

    def _settle_foreign(self, foreign: Foreign, looked: bool, at: Moment) -> None:
        """A counter that nobody vouches for may be cleared away, but neither too early nor too late."""
        assert self.n8n is not None
        cleared = not self.n8n.exists(self.counter) or bool(self.n8n.exists(self.sidecar))
        if cleared and not foreign.has_sidecar:
            sight = self.model.sight
            is_mirror = foreign.stage == "leftover" and foreign.was_shared
            if not is_mirror:
                assert sight is not None, "a foreign hold was not respected at all"
                assert sight.is_of(foreign), "a foreign hold was taken for an older one"
                assert sight.looks_dead, "a foreign hold was not respected until it expired"
                assert at.after - sight.since >= GRACE, "an orphan was not respected for the grace"
            self.model.foreign = None
        elif looked:
            self.model.look(at.before, GRACE)
            sight = self.model.sight
            assert not (sight and sight.overdue and sight.looks_dead), "an orphan is respected for ever"

    def acquire_as(
        self, client: int, lock_id: str, *, permits: int, ttl: int, queue: bool, place: bool
    ) -> None:
        model = self.model
        waiting, held = model.wish(lock_id), model.lease(lock_id)
        if waiting is not None:  # whoever waits already, asks for the same again
            queue, ttl, permits = True, waiting.ttl, waiting.permits
        if held is not None:
            permits = held.permits
        known_place = self.places.get(lock_id, 0) if place and queue and not held else 0
        request = leases.request(
            self.scope,
            renews=False,
            ttl=ttl / 1000,
            permits=permits,
            lock_id=lock_id,
            execution_id=f"execution of {lock_id}",
            workflow_name='"permits":9,"fence":9,"offered":true}',
        )
        offered = self._offers()
        reply, at = self.do(client, request.operation(queue, known_place))
        if isinstance(reply, (Queued, Refused)):
            self.places[lock_id] = reply.place
        lease = model.acquire(Wish(lock_id, client, ttl, permits, known_place), queue, at)
        if lease is not None:
            self.places.pop(lock_id, None)
            assert isinstance(reply, Granted), f"expected a lease, got {reply}"
            assert reply.total == lease.count
            self._recognize(lease, reply.fence, reply.locked_at)
        elif queue:
            assert isinstance(reply, Queued), f"expected a place in the queue, got {reply}"
            wish = model.wish(lock_id)
            assert wish is not None
            assert not known_place or reply.place == known_place
            assert wish.place in (0, reply.place), "lost its place"
            assert reply.forgotten == (known_place > 0 and waiting is None)
            wish.place = reply.place
            assert reply.head == (model.queue[0] is wish)
            assert 0 < reply.look_in <= self.backend.window * 1000
            self._check_named(reply.holder)
        else:
            assert isinstance(reply, Refused), f"expected a refusal, got {reply}"
            assert reply.total >= max(1, len(model.leases))
            self._check_named(reply.holder)
        places = [wish.place for wish in model.queue]
        assert places == sorted(set(places)), "places do not tell the order"
        self._check_wakes(offered)

    # ------------------------------------------------------------------ Interlock's clients

    @rule(
        number=st.integers(0, CLIENTS - 1),
        lock_id=st.sampled_from(LOCK_IDS),
        permits=st.sampled_from((None, None, 1, 2, 3)),
        ttl=st.sampled_from(TTLS),
        queue=st.sampled_from((True, True, False)),
        place=st.booleans(),
    )
    def acquire(
        self, *, number: int, lock_id: str, permits: int | None, ttl: int, queue: bool, place: bool
    ) -> None:
        permits = permits or self.usual_permits
        self.acquire_as(self.client(number), lock_id, permits=permits, ttl=ttl, queue=queue, place=place)

    @rule(number=st.integers(0, CLIENTS - 1), lock_id=st.sampled_from(LOCK_IDS), ttl=st.sampled_from(TTLS))
    def queue_up(self, number: int, lock_id: str, ttl: int) -> None:
        client, permits = self.client(number), self.usual_permits
        self.acquire_as(client, lock_id, permits=permits, ttl=ttl, queue=True, place=True)

    @precondition(lambda self: any(lease.offered for lease in self.model.leases))
    @rule(ttl=st.sampled_from(TTLS))
    def claim(self, ttl: int) -> None:
        lease = next(lease for lease in self.model.leases if lease.offered)
        client = lease.client if lease.client in self.backend.stores else self.client(0)
        self.acquire_as(client, lease.lock_id, permits=lease.permits, ttl=ttl, queue=True, place=False)

    @rule(number=st.integers(0, CLIENTS - 1), lock_id=st.sampled_from((*LOCK_IDS, "stranger")))
    def release(self, number: int, lock_id: str) -> None:
        offered = self._offers()
        wish = self.model.wish(lock_id)
        doubted = wish is not None and wish.doubted
        reply, at = self.do(self.client(number), Release(self.scope, lock_id))
        released = self.model.release(lock_id, at)
        if not doubted:
            shared = any(lease.permits > 1 for lease in self.model.leases)
            self._check_whether_gone(reply, released, names=not shared)
        self.places.pop(lock_id, None)
        self._check_wakes(offered)

    @precondition(lambda self: self.model.leases)
    @rule(number=st.integers(0, CLIENTS - 1), pick=st.integers(0, 2))
    def release_holder(self, number: int, pick: int) -> None:
        self.release(number, self.model.leases[pick % len(self.model.leases)].lock_id)

    @precondition(lambda self: self.model.queue)
    @rule(number=st.integers(0, CLIENTS - 1))
    def the_head_leaves(self, number: int) -> None:
        self.release(number, self.model.queue[0].lock_id)

    @rule(
        number=st.integers(0, CLIENTS - 1),
        lock_id=st.sampled_from((*LOCK_IDS, "stranger")),
        ttl=st.sampled_from(TTLS),
    )
    def renew(self, number: int, lock_id: str, ttl: int) -> None:
        reply, at = self.do(self.client(number), Renew(self.scope, lock_id, ttl))
        self._check_whether_gone(reply, self.model.renew(lock_id, ttl, at))

    @precondition(lambda self: not self.model.free)
    @rule(number=st.integers(0, CLIENTS - 1))
    def break_(self, number: int) -> None:
        expected = self._expected_holders()
        offered = self._offers()
        lost, at = self.do(self.client(number), Break(self.scope))
        assert sorted(str(holder.lock_id) for holder in lost) == sorted(expected)
        self.model.break_(at)
        self._check_wakes(offered)

    @rule(number=st.integers(0, CLIENTS - 1))
    def show(self, number: int) -> None:
        self.check_show(self.client(number))

    @precondition(lambda self: self.model.leases and self.backend.window > 10)
    @rule(pick=st.integers(0, 2), contended=st.booleans())
    def a_lease_ends(self, pick: int, contended: bool) -> None:
        """`contended`: while the lease runs out, an n8n contender prolongs the counter."""
        lease = self.model.leases[pick % len(self.model.leases)]
        self.renew(0, lease.lock_id, 30)
        count = 0
        if contended and self.n8n is not None:
            count = self.n8n.incr(self.counter)
            self.n8n.expire(self.counter, 7200)
        time.sleep(0.035)
        self.model.lapse(lease)
        if contended and self.n8n is not None and not self.model.leases:
            self.model.foreign = Foreign(
                None,
                "leftover",
                was_shared=lease.permits > 1,
                count=count,
                ends=time.monotonic() + 7200,
            )

    @precondition(lambda self: self.model.queue and len(self.model.deaf) < CLIENTS)
    @rule(number=st.integers(0, CLIENTS - 1))
    def a_client_vanishes(self, number: int) -> None:
        self.model.vanish(self.backend.clients[number])
        self.backend.dismiss(self.backend.clients[number])
        self.backend.clients[number] = self.backend.newcomer()

    # ------------------------------------------------------------------ n8n's workflows

    @precondition(lambda self: self.n8n_writes and self.model.free)
    @rule()
    def n8n_counts(self) -> None:
        assert self.n8n is not None
        assert self.n8n.incr(self.counter) == 1, "the scope is free, but n8n does not get it"
        self.model.foreign = Foreign(N8N_ID, "counted")

    @precondition(lambda self: self.model.foreign is not None and self.model.foreign.lock_id is not None)
    @rule()
    def n8n_goes_on(self) -> None:
        """The next command of a workflow that acquires, holds and releases."""
        foreign, n8n = self.model.foreign, self.n8n
        assert foreign is not None
        assert n8n is not None
        match foreign.stage:
            case "counted":
                n8n.expire(self.counter, 5000)
                foreign.stage, foreign.ends = "timed", time.monotonic() + 5000
            case "timed":
                fields = {
                    "lock_id": N8N_ID,
                    "workflow_id": "7",
                    "workflow_name": "Old",
                    "execution_id": "77",
                    "locked_at": "2025-01-01T00:00:00.000Z",
                }
                self.foreign_record = json.dumps(fields)
                n8n.set(self.sidecar, self.foreign_record)
                foreign.stage = "named"
            case "named":
                n8n.expire(self.sidecar, 5000)
                foreign.stage = "held"
            case "held":
                assert json.loads(str(n8n.get(self.sidecar)))["lock_id"] == N8N_ID
                n8n.delete(self.counter)
                foreign.stage = "uncounted"
            case "uncounted":
                n8n.delete(self.sidecar)
                self.model.foreign = None

    @precondition(lambda self: self.model.foreign is not None and self.model.foreign.lock_id is not None)
    @rule()
    def n8n_finishes(self) -> None:
        """Its workflow runs to the end before anybody looks again."""
        while self.model.foreign is not None:
            self.n8n_goes_on()

    def _n8n_may_contend(self) -> bool:
        model = self.model
        if not self.n8n_writes or model.free or (model.leases and model.counter == "lost"):
            return False
        return model.foreign is None or model.foreign.has_counter

    @precondition(_n8n_may_contend)
    @rule(ttl=st.sampled_from((100, 7200)))
    def n8n_contends(self, ttl: int) -> None:
        assert self.n8n is not None
        assert self.n8n.get(self.counter), "somebody holds the scope, but n8n sees it free"
        assert self.n8n.incr(self.counter) > 1, "somebody holds the scope, but n8n gets it"
        if self.model.foreign is not None:
            self.model.foreign.count += 1
        self.n8n_expires_late(ttl)

    @precondition(_n8n_may_contend)
    @rule(ttl=st.sampled_from((100, 7200)))
    def n8n_expires_late(self, ttl: int) -> None:
        """The EXPIRE of a contender whose INCR was long ago."""
        assert self.n8n is not None
        self.n8n.expire(self.counter, ttl)
        if self.model.leases:
            self.model.counter = "cut" if ttl == 100 else "whole"
        elif self.model.foreign is not None:
            self.model.foreign.ends = time.monotonic() + ttl
            if self.model.foreign.stage == "counted":
                self.model.foreign.stage = "timed"

    @precondition(lambda self: self.model.leases and self._n8n_may_contend())
    @rule(taken_over=st.booleans())
    def a_cut_counter_ends(self, taken_over: bool) -> None:
        """`taken_over`: another n8n workflow gets the lock then. The holder must learn of it."""
        assert self.n8n is not None
        self.n8n_contends(100)
        self.n8n.pexpire(self.counter, 1)
        time.sleep(0.003)
        self.model.counter = "lost"
        if taken_over and self.model.leases[0].permits == 1:
            assert self.n8n.incr(self.counter) == 1
            self.n8n.expire(self.counter, 5000)
            self.model.lapse(self.model.leases[0])
            self.model.foreign = Foreign(N8N_ID, "timed", ends=time.monotonic() + 5000)
            self.n8n_goes_on()
            self.n8n_goes_on()

    @precondition(
        lambda self: self.n8n_writes and len(self.model.leases) == 1 and self.model.leases[0].permits == 1
    )
    @rule()
    def n8n_cleans_up(self) -> None:
        """What the error handler does with the locks of a failed execution."""
        assert self.n8n is not None
        self.n8n.delete(self.counter)
        self.n8n.delete(self.sidecar)
        self.model.lapse(self.model.leases[0])

    @precondition(lambda self: self.model.foreign is not None and self.model.foreign.has_sidecar)
    @rule(number=st.integers(0, CLIENTS - 1))
    def release_for_n8n(self, number: int) -> None:
        """Twice: the second finds nothing, and says so."""
        self.release(number, N8N_ID)
        self.release(number, N8N_ID)

    @precondition(lambda self: self.model.foreign is not None and self.model.foreign.has_sidecar)
    @rule(number=st.integers(0, CLIENTS - 1))
    def renew_for_n8n(self, number: int) -> None:
        self.renew(number, N8N_ID, 5_000_000)

    @precondition(lambda self: self.model.sight is not None and not self.waited)
    @rule()
    def the_grace_passes(self) -> None:
        foreign = self.model.foreign
        assert self.model.sight is not None
        self.waited = self.model.sight.overdue = True
        time.sleep(GRACE + 0.01)
        if foreign is None:
            return
        if foreign.ends is not None and foreign.ends < time.monotonic():  # the end that it was given
            assert self.n8n is not None
            assert not self.n8n.exists(self.counter), "what has no end stays for ever"
            self.model.foreign = None

    # ------------------------------------------------------------------ checks

    def _recognize(self, lease: Lease, fence: int | None, locked_at: str | None) -> None:
        assert fence is not None
        assert locked_at is not None
        assert lease.locked_at in (None, locked_at), "the holder's locked_at has changed"
        lease.locked_at = locked_at
        self.model.learn_fence(lease, fence)

    def _expected_holders(self) -> list[str]:
        foreign = self.model.foreign
        if foreign is not None:
            return [str(foreign.lock_id if foreign.has_sidecar else None)]
        return [lease.lock_id for lease in self.model.leases]

    def _check_named(self, holder: Holder | None) -> None:
        """The one who stands in the way, as a reply names it."""
        assert holder is not None, "refused, but by nobody"
        assert str(holder.lock_id) in self._expected_holders()
        lease = self.model.lease(str(holder.lock_id))
        if lease is not None:
            self._check_identity(holder, lease)

    def _check_identity(self, holder: Holder, lease: Lease) -> None:
        assert holder.execution_id == f"execution of {lease.lock_id}"
        assert holder.permits == lease.permits
        self._recognize(lease, holder.fence, holder.locked_at)

    def _check_whether_gone(self, reply: Any, expected: bool, names: bool = True) -> None:
        if expected:
            assert isinstance(reply, Done), f"its own lease, but {reply}"
            return
        assert isinstance(reply, Gone), f"not its lease, but {reply}"
        foreign = self.model.foreign
        if (self.model.leases and names) or (foreign is not None and foreign.has_sidecar):
            self._check_named(reply.holder)
        else:
            assert reply.holder is None

    def _offers(self) -> set[str]:
        return {lease.lock_id for lease in self.model.leases if lease.offered}

    def _check_wakes(self, before: set[str]) -> None:
        """Whoever was just given the scope is told, and nobody else."""
        expected = {
            (lease.client, lease.lock_id)
            for lease in self.model.leases
            if lease.offered and lease.lock_id not in before and lease.client in self.backend.stores
        }
        deadline = time.monotonic() + 2
        told: set[tuple[int, str]] = set()
        while True:
            for client, store in self.backend.stores.items():
                told |= {
                    (client, s[2])
                    for s in store.read(0, self.backend.bell)[1]
                    if s[:2] == ("claim", self.scope)
                }
            if expected <= told or time.monotonic() > deadline:
                break
        assert expected <= told, "was given the scope, but is not told"
        assert {lock_id for _, lock_id in told} <= {lease.lock_id for lease in self.model.leases}

    def check_show(self, client: int) -> None:
        info, at = self.do(client, Show(self.scope))
        assert isinstance(info, ScopeInfo)
        model = self.model
        assert sorted(str(holder.lock_id) for holder in info.holders) == sorted(self._expected_holders())
        assert info.held == (not model.free)
        if model.foreign is None:
            assert len(info.holders) <= min([holder.permits for holder in info.holders], default=0)
        waiting = [waiter.lock_id for waiter in info.waiters]
        model.forget_doubted(waiting)
        assert waiting == [wish.lock_id for wish in model.queue]
        assert info.waiting == len(waiting)
        if model.foreign is not None:
            return
        if model.counter == "whole":
            assert info.count >= len(model.leases)
        for holder in info.holders:
            lease = model.lease(str(holder.lock_id))
            assert lease is not None
            self._check_identity(holder, lease)
            assert holder.expires_in is not None
            self._check_time_left(lease, holder.expires_in * 1000, at)

    def _check_time_left(self, lease: Lease, left: float, at: Moment) -> None:
        most = lease.ttl - (at.before - lease.since.after) * 1000 + SLACK
        least = lease.ttl - (at.after - lease.since.before) * 1000 - SLACK
        if lease.offered and lease.ttl in TTLS:  # unless somebody renewed it
            least = 0
        assert least <= left <= most, f"{lease.lock_id} has {left} ms left of {lease.ttl}"

    @invariant()
    def holds(self) -> None:
        if self.n8n is not None:
            self.check_what_n8n_sees(self.n8n)
        if self.watched or self.silences:
            self.check_show(self.backend.clients[0])

    def check_what_n8n_sees(self, n8n: redis.Redis) -> None:
        """Counter and sidecar agree with the holder, and nothing stays behind for ever."""
        model, foreign = self.model, self.model.foreign
        begun = time.monotonic()
        with n8n.pipeline() as pipeline:  # one MULTI: nothing changes in between
            pipeline.get(self.counter).get(self.sidecar).pttl(self.counter).pttl(self.sidecar)
            counter, sidecar, counter_left, sidecar_left = pipeline.execute()
        at = Moment(begun, time.monotonic())
        if foreign is not None:
            assert (counter is not None) == foreign.has_counter
            assert sidecar == (self.foreign_record if foreign.has_sidecar else None)
        elif model.leases:
            assert sidecar, "the holder has no sidecar"
            shown = model.lease(json.loads(sidecar)["lock_id"])
            assert shown is not None, "the sidecar names somebody who does not hold it"
            self._recognize(shown, json.loads(sidecar)["fence"], json.loads(sidecar)["locked_at"])
            self._check_time_left(shown, sidecar_left, at)
            if counter is not None and model.counter == "lost":
                model.counter = "whole"  # mended by somebody who did not have to
            if model.counter != "lost":
                assert counter is not None, "the counter is gone"
                assert int(counter) >= len(model.leases)
            if model.counter == "whole":
                assert counter_left >= sidecar_left - SLACK, "the counter ends before the lease"
        else:
            assert (counter, sidecar) == (None, None), "the scope is free, but n8n sees it taken"
        endless = {self.counter} if foreign is not None and foreign.stage == "counted" else set()
        if foreign is not None and foreign.stage == "named":
            endless = {self.sidecar}
        for key in n8n.keys("*"):
            assert n8n.pttl(key) != -1 or key in endless, f"{key} stays for ever"

    def teardown(self) -> None:
        try:
            self._leave_no_trace()
        finally:
            if self.n8n is not None:
                self.n8n.flushdb()

    def _leave_no_trace(self) -> None:
        client = self.backend.clients[0]
        self.check_show(client)
        if self.model.foreign is not None:
            self.break_(0)
        while not self.model.free or self.model.queue:
            waiting = [wish.lock_id for wish in self.model.queue]
            self.release(0, [*waiting, *(lease.lock_id for lease in self.model.leases)][-1])
        self.check_show(client)
        assert self.scope not in self.backend.stores[client].call(Scopes())
        if self.n8n is not None:
            self.check_what_n8n_sees(self.n8n)
            kept = [key for key in self.n8n.keys("*") if not key.endswith(":execution")]
            assert len(kept) <= 3, kept


class PatientMachine(ScopeMachine):
    """With a liveness window that can be waited for."""

    @initialize(
        permits=st.lists(st.sampled_from((1, 1, 2)), min_size=4, max_size=4),
        back=st.sampled_from((None, *LOCK_IDS[:4])),
        released=st.booleans(),
    )
    def crowd(self, permits: list[int], back: str | None, released: bool) -> None:
        """`back` returns to where it was, after all have been silent."""
        self.assemble(permits)
        self.silence(back, released)

    @precondition(lambda self: self.silences < 2 and len(self.model.queue) > 1)
    @rule(back=st.sampled_from((None, *LOCK_IDS)), released=st.booleans())
    def silence(self, back: str | None, released: bool) -> None:
        """`released`: and then the scope goes to the next, who must not be one of the dead."""
        time.sleep(self.backend.window + 0.3)
        self.model.silence()
        self.silences += 1
        waiting = self.model.wish(back) if back else None
        if waiting is not None and waiting.client in self.backend.stores:
            self.acquire_as(waiting.client, waiting.lock_id, permits=1, ttl=1, queue=True, place=True)
        if released and self.model.leases:
            self.release_holder(0, 0)


def profile(examples: int, steps: int) -> settings:
    share = examples / 50  # of the default run
    return settings(
        max_examples=round(EXAMPLES * share) if EXAMPLES else examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not EXAMPLES,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        # Shrinking replays a failure for minutes, as the histories sleep: only when there is time.
        phases=[Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture
def backend(store: Any) -> Iterator[Callable[[float], Backend]]:
    made: list[Backend] = []

    def make(window: float) -> Backend:
        made.append(Backend(store.url, window))
        return made[-1]

    yield make
    for each in made:
        each.close()


def check(machine: Callable[[], ScopeMachine], examples: int, steps: int) -> None:
    # What is left to do depends on the time in places, and a stall can change the middle of a known history.
    for attempt in range(3):
        try:
            run_state_machine_as_test(machine, settings=profile(examples, steps))
        except FlakyStrategyDefinition:
            if attempt == 2:
                raise
        else:
            return


def test_any_history_agrees_with_the_model(backend):
    there = backend(600.0)
    check(lambda: ScopeMachine(there), 50, 50)


def test_any_history_with_long_silences_agrees_with_the_model(backend):
    there = backend(1.0)
    check(lambda: PatientMachine(there), 5, 12)
