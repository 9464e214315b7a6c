"""A model of one scope, written from the promises of the design. It shares no code with the stores.

It has no clock: who drives it says when a lease ends, and passes the moments at which things happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Client = int


@dataclass
class Wish:
    """What somebody asks for."""

    lock_id: str
    client: Client
    ttl: int
    permits: int
    place: int = 0
    doubted: bool = False  # was silent for a liveness window: the store may or may not have forgotten it


@dataclass
class Lease:
    lock_id: str
    client: Client
    ttl: int
    permits: int
    number: int  # of all grants on this scope, the how manieth
    since: Any  # when the ttl began to count
    offered: bool  # handed over, but not claimed yet
    count: int  # of all who hold the scope, when it was granted or asked for again
    locked_at: str | None = None


@dataclass
class Foreign:
    """A hold that n8n's workflows took with their own commands, as far as they have come with it.

    counted: INCR. timed: and EXPIRE. named: and SET of the sidecar. held: and EXPIRE of that.
    uncounted: half released, the counter is deleted. leftover: nobody's, a counter that contenders keep
    alive although the lease is over.
    """

    lock_id: str | None
    stage: str
    was_shared: bool = False
    count: int = 1
    ends: float | None = None  # of the counter

    @property
    def has_sidecar(self) -> bool:
        return self.stage in ("named", "held", "uncounted")

    @property
    def has_counter(self) -> bool:
        return self.stage != "uncounted"


@dataclass
class Sight:
    """What Interlock remembers of a counter without a sidecar. The next may not be told from it."""

    since: float
    count: int
    ends: float
    looks_dead: bool  # like what a crash left, so it is respected for the grace only
    overdue: bool = False

    def is_of(self, foreign: Foreign) -> bool:
        if foreign.ends is None or foreign.count < self.count:
            return False
        return foreign.count > self.count or foreign.ends <= self.ends + 0.1


@dataclass
class Scope:
    skips_the_deaf: bool
    """Whether the store notices, when it hands over, that a client is gone."""

    leases: list[Lease] = field(default_factory=list)
    queue: list[Wish] = field(default_factory=list)
    foreign: Foreign | None = None
    sight: Sight | None = None
    counter: str = "whole"
    """What contenders did to the counter of a lease: whole, cut (ends too early) or lost."""
    deaf: set[Client] = field(default_factory=set)
    silent: set[Client] = field(default_factory=set)
    ended_by_itself: bool = False  # the last lease was not released
    granted: int = 0
    fences: dict[int, int] = field(default_factory=dict)

    # ------------------------------------------------------------------ asking

    @property
    def free(self) -> bool:
        return not self.leases and self.foreign is None

    def lease(self, lock_id: str) -> Lease | None:
        return next((lease for lease in self.leases if lease.lock_id == lock_id), None)

    def wish(self, lock_id: str) -> Wish | None:
        return next((wish for wish in self.queue if wish.lock_id == lock_id), None)

    def admits(self, wish: Wish) -> bool:
        """As wide as the narrowest of those who hold it and the one who wants it."""
        width = min([wish.permits, *(lease.permits for lease in self.leases)])
        return self.foreign is None and len(self.leases) < width

    # ------------------------------------------------------------------ operations

    def look(self, at: float, grace: float) -> None:
        """Interlock sees what n8n left. A counter without sidecar and end is given one."""
        foreign = self.foreign
        if foreign is None or foreign.has_sidecar:
            self.sight = None
        elif self.sight is None or not self.sight.is_of(foreign):
            remnant = self.ended_by_itself and self.sight is None and foreign.count > 1
            looks_dead = remnant or foreign.ends is None
            foreign.ends = foreign.ends or at + grace
            self.sight = Sight(at, foreign.count, foreign.ends, looks_dead)
            self.ended_by_itself = False

    def acquire(self, wish: Wish, queue: bool, at: Any) -> Lease | None:
        """The lease, or None for whoever waits or was refused."""
        lease = self.lease(wish.lock_id)
        if lease is not None:
            lease.ttl, lease.since, lease.offered, lease.count = wish.ttl, at, False, len(self.leases)
            self.counter = "whole"
            return lease
        if queue:
            self.silent.discard(wish.client)
            self._enter(wish)
        self._hand_over(at, caller=wish.lock_id if queue else None)
        lease = self.lease(wish.lock_id)
        if lease is None and not queue and not self.queue and self.admits(wish):
            lease = self._grant(wish, at, offered=False)
        if lease is None and self.leases:
            self.counter = "whole"  # who finds it cut mends it
        return lease

    def release(self, lock_id: str, at: Any) -> bool:
        """Whether there was something to release."""
        lease, wish = self.lease(lock_id), self.wish(lock_id)
        if self.foreign is not None and self.foreign.has_sidecar and self.foreign.lock_id == lock_id:
            self.foreign = self.sight = None
        elif lease is not None:
            self.leases.remove(lease)
            self.counter = "whole"
        elif wish is not None:
            was_head = self.queue[0] is wish
            self.queue.remove(wish)
            if not was_head:
                return True
        else:
            return False
        self.ended_by_itself = False
        self._hand_over(at)
        return True

    def renew(self, lock_id: str, ttl: int, at: Any) -> bool:
        if self.foreign is not None and self.foreign.has_sidecar and self.foreign.lock_id == lock_id:
            self.foreign.stage = "held"
            return True
        lease = self.lease(lock_id)
        if lease is None:
            return False
        lease.ttl, lease.since = ttl, at
        self.counter = "whole"
        return True

    def break_(self, at: Any) -> None:
        self.leases.clear()
        self.foreign = self.sight = None
        self.ended_by_itself = False
        self._hand_over(at)

    # ------------------------------------------------------------------ what happens meanwhile

    def lapse(self, lease: Lease) -> None:
        self.leases.remove(lease)
        self.ended_by_itself = True

    def vanish(self, client: Client) -> None:
        self.deaf.add(client)

    def silence(self) -> None:
        """Nobody says anything for so long that waiters count as dead and offers are void."""
        self.leases = [lease for lease in self.leases if not lease.offered]
        for wish in self.queue:
            self.silent.add(wish.client)
            wish.doubted = True
        self.ended_by_itself = True

    def forget_doubted(self, still_there: list[str]) -> None:
        self.queue = [w for w in self.queue if w.lock_id in still_there or not w.doubted]

    def learn_fence(self, lease: Lease, fence: int) -> None:
        """Every fence is greater than those of all grants before it, and never changes."""
        for number, known in self.fences.items():
            if number == lease.number:
                assert known == fence, "the fence of a lease has changed"
            elif number < lease.number:
                assert known < fence, f"fence {fence} came after {known}"
            else:
                assert known > fence, f"fence {fence} came before {known}"
        self.fences[lease.number] = fence

    # ------------------------------------------------------------------ inside

    def _enter(self, wish: Wish) -> None:
        waiting = self.wish(wish.lock_id)
        if waiting is not None:
            waiting.client, waiting.doubted = wish.client, False
        elif wish.place:
            ahead = [w for w in self.queue if w.place < wish.place]
            self.queue.insert(len(ahead), wish)
        else:
            self.queue.append(wish)

    def _hand_over(self, at: Any, caller: str | None = None) -> None:
        while self.queue:
            head = self.queue[0]
            dead = head.client in self.silent
            if not dead and not self.admits(head):
                return
            self.queue.pop(0)
            unreachable = self.skips_the_deaf and head.client in self.deaf
            if not dead and (head.lock_id == caller or not unreachable):
                self._grant(head, at, offered=head.lock_id != caller)

    def _grant(self, wish: Wish, at: Any, offered: bool) -> Lease:
        self.granted += 1
        self.sight = None
        lease = Lease(
            wish.lock_id,
            wish.client,
            wish.ttl,
            wish.permits,
            self.granted,
            at,
            offered,
            count=len(self.leases) + 1,
        )
        self.leases.append(lease)
        self.counter = "whole"
        return lease
