"""The operations on a local file, each in one transaction."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ... import machine
from ...model import Holder, LimitInUse, ScopeInfo, holder_from_json, waiter_from_json
from ..base import (
    FAR,
    LOOK,
    Acquire,
    Begin,
    Break,
    Done,
    Follow,
    GetStatus,
    Gone,
    Granted,
    Limit,
    LimitsInUse,
    Once,
    Operation,
    Owned,
    Queued,
    Refund,
    Refused,
    Release,
    Renew,
    Report,
    Reset,
    Ruling,
    Scopes,
    Seen,
    SetStatus,
    Show,
    Signal,
    Taken,
    UnsetStatus,
    Used,
    new_client_id,
)
from .board import Board, Wake, iso_now
from .file import File, sweep
from .limits import Limits

SWEEP_EVERY = 60_000  # ms
CLAIM_TIME = 500  # ms that a waiter has at least to claim what was handed to it
_LEASE = "lock_id, record, fence, permits, expires, offered, bound, client, realm, pid, started"
_WAITER = "place, lock_id, identity, ttl, permits, bound, client, realm, pid, started"


class _Lease(NamedTuple):
    lock_id: str
    record: str
    fence: int
    permits: int
    expires: int
    offered: int
    bound: int
    client: str
    realm: str
    pid: int
    started: int | None

    def holder(self, now: int) -> Holder:
        return holder_from_json(self.record, max(0, self.expires - now) / 1000)


class _Waiter(NamedTuple):
    place: int
    lock_id: str
    identity: str
    ttl: int
    permits: int
    bound: int
    client: str
    realm: str
    pid: int
    started: int | None


class Engine:
    """Not for two threads at once."""

    def __init__(self, file: str, window: float) -> None:
        self.file = File(file)
        self._window = round(window * 1000)
        self.client = new_client_id()
        self.realm = machine.realm()
        self._pid = os.getpid()
        self._started = machine.started(self._pid)
        self._heard = 0  # the number of the last event that was read
        self._swept = round(machine.now() * 1000)

    def run(self, op: Operation) -> tuple[Any, list[Wake]]:
        """The answer, and the messages that are to be sent now that it is so."""
        answer = self.file.change(lambda db: self._answer(db, op))
        return answer, list(self._board.wakes)

    def offers(self) -> list[tuple[str, str]]:
        """Scope and lock_id of everything that was handed to this client and waits to be claimed."""
        return self.file.read("SELECT scope, lock_id FROM leases WHERE client = ? AND offered", self.client)

    def news(self) -> list[Signal]:
        """The events since this was asked last."""
        found = self.file.read("SELECT id, event FROM events WHERE id > ? ORDER BY id", self._heard)
        if not found:
            return []
        missed = found[0][0] - self._heard - 1
        self._heard = found[-1][0]
        signals: list[Signal] = [("event", event) for _, event in found]
        return [("missed", str(missed)), *signals] if missed else signals

    # ------------------------------------------------------------------ operations

    def _answer(self, db: sqlite3.Connection, op: Operation) -> Any:
        self._now = round(machine.now() * 1000)
        self._board = Board(db, self._now, self.client, self.realm)
        if self._now - self._swept > SWEEP_EVERY:
            self._swept = self._now
            sweep(db)
        return _ANSWERS[type(op)](self, db, op)

    def _acquire(self, db: sqlite3.Connection, op: Acquire) -> Granted | Refused | Queued:
        leases = self._leases(db, op.scope)
        again = self._claim(db, op, leases)
        if again is not None:
            return again
        me = self._as_waiter(op)
        line = db.execute("SELECT max(place) FROM waiters WHERE scope = ?", (op.scope,)).fetchone()[0]
        if line is None and _admits(leases, op.permits):
            return self._grant(db, op.scope, me, leases, offer=None)
        if not op.place:
            me = me._replace(place=max(time.time_ns() // 1000, (line or 0) + 1))
        forgotten = False
        if op.queue:
            me, is_new = self._join(db, op.scope, me)
            forgotten = is_new and bool(op.place)
            if is_new:
                self._board.tell("queued", op.scope, op.identity)
        granted = self._hand_over(db, op.scope, leases, caller=op.lock_id if op.queue else None)
        if granted is not None:
            return granted
        head = self._first_living(db, op.scope)
        if not op.queue and head is None and _admits(leases, op.permits):
            return self._grant(db, op.scope, me, leases, offer=None)  # all who waited were dead
        holder = leases[0].holder(self._now) if leases else None
        if not op.queue:
            if op.fails:
                self._board.tell("denied", op.scope, op.identity)
            return Refused(holder, me.place, len(leases))
        is_head = head is not None and head.lock_id == op.lock_id
        look_in = self._window
        pids: tuple[int, ...] = ()
        if leases and (is_head or any(lease.offered for lease in leases)):
            look_in = min(look_in, min(lease.expires for lease in leases) + 1 - self._now)
        if is_head:
            pids = tuple(
                {lease.pid for lease in leases if self._ends_with_process(lease) and lease.pid != self._pid}
            )
        return Queued(holder, me.place, look_in, is_head, forgotten, pids)

    def _release(self, db: sqlite3.Connection, op: Release) -> Done | Gone:
        leases = self._leases(db, op.scope)
        mine = [x for x in leases if x.lock_id == op.lock_id and _is_meant(x.record, op.execution_id)]
        if mine:
            self._drop(db, op.scope, mine[0], leases)
            self._board.tell("released", op.scope, mine[0].record)
            self._hand_over(db, op.scope, leases)
            return Done()
        was_head = self._first_living(db, op.scope)
        waiting = db.execute(
            "SELECT identity, client, realm FROM waiters WHERE scope = ? AND lock_id = ?",
            (op.scope, op.lock_id),
        ).fetchone()
        if waiting is not None and _is_meant(waiting[0], op.execution_id):
            if op.execution_id is not None:  # it may live, and would come back
                text = f"removed\n{op.scope}\n{op.lock_id}"
                self._board.wakes[Wake(waiting[1], waiting[2], text)] = None
            db.execute("DELETE FROM waiters WHERE scope = ? AND lock_id = ?", (op.scope, op.lock_id))
            self._board.tell("left", op.scope, waiting[0])
            self._forget_if_empty(db, op.scope)
            if was_head is not None and was_head.lock_id == op.lock_id:
                self._hand_over(db, op.scope, leases)
                self._tell_head(db, op.scope)
            return Done()
        if op.fence:
            self._board.tell("lost", op.scope, fence=op.fence, lock_id=op.lock_id)
        # A permit that is not there may well have been released, whoever holds the others.
        alone = leases and leases[0].permits == 1
        return Gone(leases[0].holder(self._now) if alone else None)

    def _renew(self, db: sqlite3.Connection, op: Renew) -> Done | Gone:
        leases = self._leases(db, op.scope)
        if all(lease.lock_id != op.lock_id for lease in leases):
            if op.fence:
                self._board.tell("lost", op.scope, fence=op.fence, lock_id=op.lock_id)
            return Gone(leases[0].holder(self._now) if leases else None)
        self._board.prolong(op.scope, op.lock_id, self._now + op.ttl)
        db.execute(
            "UPDATE leases SET expires = ? WHERE scope = ? AND lock_id = ?",
            (self._now + op.ttl, op.scope, op.lock_id),
        )
        head = self._first_living(db, op.scope)
        if head is not None:
            ends = [op.ttl, *(x.expires - self._now for x in leases if x.lock_id != op.lock_id)]
            self._wake(head, f"renewed\n{op.scope}\n{min(ends)}")
        return Done()

    def _break(self, db: sqlite3.Connection, op: Break) -> tuple[Holder, ...]:
        leases = self._leases(db, op.scope)
        lost = tuple(lease.holder(self._now) for lease in leases)
        for lease in list(leases):
            self._drop(db, op.scope, lease, leases)
            self._board.tell("broken", op.scope, lease.record)
        self._hand_over(db, op.scope, leases)
        return lost

    def _show(self, db: sqlite3.Connection, op: Show) -> ScopeInfo:
        scope = op.scope
        leases = self._leases(db, scope)
        self._forget_the_dead(db, scope)
        (waiting,) = db.execute("SELECT count(*) FROM waiters WHERE scope = ?", (scope,)).fetchone()
        line = db.execute("SELECT identity FROM waiters WHERE scope = ? ORDER BY place LIMIT 1000", (scope,))
        return ScopeInfo(
            scope=scope,
            held=bool(leases),
            count=len(leases),
            holders=tuple(lease.holder(self._now) for lease in leases),
            waiting=waiting,
            waiters=tuple(waiter_from_json(identity) for (identity,) in line),
        )

    def _scopes(self, db: sqlite3.Connection, op: Scopes) -> list[str]:
        return [scope for (scope,) in db.execute("SELECT scope FROM leases UNION SELECT scope FROM waiters")]

    def _owned(self, db: sqlite3.Connection, op: Owned) -> list[tuple[str, str]]:
        rows = db.execute(
            "SELECT scope, lock_id, record FROM leases UNION SELECT scope, lock_id, identity FROM waiters"
        )
        return [(scope, lock_id) for scope, lock_id, record in rows if _is_meant(record, op.execution_id)]

    # ------------------------------------------------------------------ statuses, events and limits

    def _begin(self, db: sqlite3.Connection, op: Begin) -> Granted | Taken:
        ask = op.lease
        leases = self._leases(db, ask.scope)
        answer = self._claim(db, ask, leases)
        if answer is None:
            self._hand_over(db, ask.scope, leases)  # those in line come first
            status, head = self._board.status(ask.scope), self._first_living(db, ask.scope)
            if status.output is not None or head is not None or not _admits(leases, 1):
                self._board.tell("denied", ask.scope, ask.identity)
                return Taken(leases[0].holder(self._now) if leases else None, len(leases), status)
            answer = self._grant(db, ask.scope, self._as_waiter(ask), leases, offer=None)
        self._board.show(ask.scope, op.status, self._now + ask.ttl, ask.lock_id)
        return answer

    def _report(self, db: sqlite3.Connection, op: Report) -> Done | Gone:
        leases = self._leases(db, op.scope)
        mine = next((lease for lease in leases if lease.lock_id == op.lock_id), None)
        if mine is None:
            return Gone(leases[0].holder(self._now) if leases else None)
        self._board.show(op.scope, op.words, mine.expires, op.lock_id)
        return Done()

    def _set_status(self, db: sqlite3.Connection, op: SetStatus) -> Done | Gone:
        owner = self._owner_of_status(db, op.key)
        if owner is None:
            self._board.show(op.key, op.words, self._now + op.timeout, None)
        return owner or Done()

    def _unset_status(self, db: sqlite3.Connection, op: UnsetStatus) -> Done | Gone:
        owner = self._owner_of_status(db, op.key)
        if owner is None:
            self._board.take_away(op.key)
        return owner or Done()

    def _get_status(self, db: sqlite3.Connection, op: GetStatus) -> Seen:
        owner = self._owner_of_status(db, op.key)
        status = self._board.status(op.key)
        look_in = FAR if status.expires_in is None else round(status.expires_in * 1000) + 1
        if owner is not None:  # a holder that dies tells nobody but those who wait for its scope
            look_in = min(look_in, self._window)
        if op.watch:
            self._board.watch(op.key, look_in)
        return Seen(status, look_in)

    def _owner_of_status(self, db: sqlite3.Connection, key: str) -> Gone | None:
        """Whose progress the status is. That of a lease that is over is cleared away."""
        row = self._board.row(key)
        if row is None or row[2] is None:
            return None
        if all(lease.lock_id != row[2] for lease in self._leases(db, key)):
            self._board.end(key, row[2])
            return None
        return Gone(holder_from_json(row[1]))

    def _follow(self, db: sqlite3.Connection, op: Follow) -> Done:
        last = self._board.follow()
        if not self._heard or last < self._heard:  # the first time, or another file
            self._heard = last
        return Done()

    def _limit(self, db: sqlite3.Connection, op: Limit) -> Ruling:
        ruling = Limits(db).ask(op)
        if not ruling.allowed and op.patience != LOOK:
            self._board.tell("denied", op.scope, retry_after=ruling.delay)
        return ruling

    def _refund(self, db: sqlite3.Connection, op: Refund) -> bool:
        return Limits(db).refund(op)

    def _reset(self, db: sqlite3.Connection, op: Reset) -> bool:
        return Limits(db).reset(op)

    def _once(self, db: sqlite3.Connection, op: Once) -> bool:
        return Limits(db).once(op)

    def _limits_in_use(self, db: sqlite3.Connection, op: LimitsInUse) -> list[tuple[str, str, int]]:
        return Limits(db).in_use()

    def _used(self, db: sqlite3.Connection, op: Used) -> LimitInUse | None:
        return Limits(db).used(op)

    # ------------------------------------------------------------------ leases

    def _as_waiter(self, op: Acquire) -> _Waiter:
        return _Waiter(
            op.place,
            op.lock_id,
            op.identity,
            op.ttl,
            op.permits,
            op.renews,
            self.client,
            self.realm,
            self._pid,
            self._started,
        )

    def _ends_with_process(self, lease: _Lease) -> bool:
        """Whether we can tell when the holder dies, and that would end the lease."""
        return bool(lease.bound or lease.offered) and lease.realm == self.realm

    def _has_ended(self, realm: str, pid: int, started: int | None) -> bool:
        """Whether that process surely runs no more; those of another realm can't be seen from here."""
        if not realm.startswith(machine.boot_id()):
            return True
        ourselves = pid == self._pid and started == self._started
        return realm == self.realm and not ourselves and not machine.alive(pid, started)

    def _leases(self, db: sqlite3.Connection, scope: str) -> list[_Lease]:
        """Those that stand; the others are cleared away."""
        standing = []
        found = db.execute(f"SELECT {_LEASE} FROM leases WHERE scope = ?", (scope,)).fetchall()
        for lease in map(_Lease._make, found):
            rebooted = not lease.realm.startswith(machine.boot_id())
            dead = self._ends_with_process(lease) and self._has_ended(lease.realm, lease.pid, lease.started)
            if rebooted or dead or lease.expires <= self._now:
                self._delete(db, scope, lease)
                self._board.tell("expired", scope, lease.record)
            else:
                standing.append(lease)
        return standing

    def _drop(self, db: sqlite3.Connection, scope: str, lease: _Lease, leases: list[_Lease]) -> None:
        self._delete(db, scope, lease)
        leases.remove(lease)

    def _delete(self, db: sqlite3.Connection, scope: str, lease: _Lease) -> None:
        db.execute("DELETE FROM leases WHERE scope = ? AND lock_id = ?", (scope, lease.lock_id))
        self._board.end(scope, lease.lock_id)

    def _claim(self, db: sqlite3.Connection, op: Acquire, leases: list[_Lease]) -> Granted | None:
        """Whoever asks for its lease once more claims what was handed over, or has lost a reply."""
        mine = next((lease for lease in leases if lease.lock_id == op.lock_id), None)
        if mine is None:
            return None
        self._board.prolong(op.scope, op.lock_id, self._now + op.ttl)
        db.execute(
            "UPDATE leases SET expires = ?, offered = 0, bound = ?, client = ?, realm = ?, pid = ?,"
            " started = ? WHERE scope = ? AND lock_id = ?",
            (
                self._now + op.ttl,
                op.renews,
                self.client,
                self.realm,
                self._pid,
                self._started,
                op.scope,
                op.lock_id,
            ),
        )
        return Granted(mine.fence, holder_from_json(mine.record).locked_at or "", len(leases))

    def _grant(
        self, db: sqlite3.Connection, scope: str, to: _Waiter, leases: list[_Lease], offer: int | None
    ) -> Granted:
        """`offer`: for how many ms the lease waits to be claimed; None grants it at once."""
        micros = time.time_ns() // 1000
        (fence,) = db.execute(
            "UPDATE high SET fence = max(fence + 1, ?) RETURNING fence", (micros,)
        ).fetchone()
        at = iso_now()
        lease = _Lease(
            to.lock_id,
            f'{to.identity[:-1]},"locked_at":"{at}","fence":{fence}}}',
            fence,
            to.permits,
            self._now + (to.ttl if offer is None else min(to.ttl, offer)),
            offer is not None,
            to.bound,
            to.client,
            to.realm,
            to.pid,
            to.started,
        )
        db.execute(f"INSERT INTO leases (scope, {_LEASE}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", (scope, *lease))
        leases.append(lease)
        told = "acquired" if offer is None else "handed_over"
        self._board.tell(told, scope, lease.record, ttl=lease.expires - self._now)
        return Granted(fence, at, len(leases))

    # ------------------------------------------------------------------ the queue

    def _wake(self, to: _Waiter, text: str) -> None:
        self._board.wakes[Wake(to.client, to.realm, text)] = None

    def _join(self, db: sqlite3.Connection, scope: str, me: _Waiter) -> tuple[_Waiter, bool]:
        """Be in the queue; answers with the place, and whether it was not there yet."""
        db.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (scope, self.client, self._now))
        # Whoever asks last is the one to wake: the one who asked before may have crashed.
        known = db.execute(
            "DELETE FROM waiters WHERE scope = ? AND lock_id = ? RETURNING place", (scope, me.lock_id)
        ).fetchone()
        if known is not None:
            me = me._replace(place=known[0])
        while True:
            try:
                db.execute(
                    f"INSERT INTO waiters (scope, {_WAITER}) VALUES (?,?,?,?,?,?,?,?,?,?,?)", (scope, *me)
                )
            except sqlite3.IntegrityError:
                me = me._replace(place=me.place + 1)  # two were refused in the same moment
            else:
                return me, known is None

    def _patience(self, db: sqlite3.Connection, scope: str, client: str) -> int:
        """How long the client may still be silent before it counts as dead."""
        row = db.execute("SELECT at FROM seen WHERE scope = ? AND client = ?", (scope, client)).fetchone()
        return int(row[0] + self._window + 250 - self._now) if row else 0

    def _first_living(self, db: sqlite3.Connection, scope: str) -> _Waiter | None:
        """The head of the queue; the dead in front of it are forgotten."""
        while True:
            row = db.execute(
                f"SELECT {_WAITER} FROM waiters WHERE scope = ? ORDER BY place LIMIT 1", (scope,)
            ).fetchone()
            if row is None:
                return None
            head = _Waiter._make(row)
            ended = self._has_ended(head.realm, head.pid, head.started)
            if not ended and self._patience(db, scope, head.client) > 0:
                return head
            self._leave_queue(db, scope, head)
            self._board.tell("left", scope, head.identity)

    def _forget_the_dead(self, db: sqlite3.Connection, scope: str) -> None:
        """Wherever in the queue they were."""
        found = db.execute("SELECT DISTINCT realm, pid, started FROM waiters WHERE scope = ?", (scope,))
        for process in found.fetchall():
            if self._has_ended(*process):
                gone = db.execute(
                    "DELETE FROM waiters WHERE scope = ? AND realm = ? AND pid = ? AND started IS ?"
                    " RETURNING identity",
                    (scope, *process),
                ).fetchall()
                for (identity,) in gone:
                    self._board.tell("left", scope, identity)
                self._forget_if_empty(db, scope)
                self._tell_head(db, scope)

    def _leave_queue(self, db: sqlite3.Connection, scope: str, waiter: _Waiter) -> None:
        db.execute("DELETE FROM waiters WHERE scope = ? AND place = ?", (scope, waiter.place))
        self._forget_if_empty(db, scope)

    def _forget_if_empty(self, db: sqlite3.Connection, scope: str) -> None:
        if db.execute("SELECT 1 FROM waiters WHERE scope = ? LIMIT 1", (scope,)).fetchone() is None:
            db.execute("DELETE FROM seen WHERE scope = ?", (scope,))

    def _hand_over(
        self, db: sqlite3.Connection, scope: str, leases: list[_Lease], caller: str | None = None
    ) -> Granted | None:
        """Give the scope to the first waiters that live, as far as there is room; they claim it at once."""
        granted, offered = None, False
        while True:
            head = self._first_living(db, scope)
            if head is None or not _admits(leases, head.permits):
                break
            patience = self._patience(db, scope, head.client)
            self._leave_queue(db, scope, head)
            if head.lock_id == caller:
                granted = self._grant(db, scope, head, leases, offer=None)
            else:
                self._grant(db, scope, head, leases, offer=max(CLAIM_TIME, patience))
                self._wake(head, "claim")
                offered = True
        if head is not None and (offered or granted is not None):
            self._wake(head, f"head\n{scope}")
        return granted

    def _tell_head(self, db: sqlite3.Connection, scope: str) -> None:
        head = self._first_living(db, scope)
        if head is not None:
            self._wake(head, f"head\n{scope}")


def _admits(leases: list[_Lease], wanted: int) -> bool:
    return len(leases) < min([wanted, *(lease.permits for lease in leases)])


def _is_meant(record: str, execution_id: str | None) -> bool:
    return execution_id is None or holder_from_json(record).execution_id == execution_id


_ANSWERS: dict[type, Callable[[Engine, sqlite3.Connection, Any], Any]] = {
    Acquire: Engine._acquire,
    Release: Engine._release,
    Renew: Engine._renew,
    Begin: Engine._begin,
    Break: Engine._break,
    Show: Engine._show,
    Scopes: Engine._scopes,
    Owned: Engine._owned,
    Limit: Engine._limit,
    Refund: Engine._refund,
    Reset: Engine._reset,
    LimitsInUse: Engine._limits_in_use,
    Used: Engine._used,
    Once: Engine._once,
    SetStatus: Engine._set_status,
    Report: Engine._report,
    GetStatus: Engine._get_status,
    UnsetStatus: Engine._unset_status,
    Follow: Engine._follow,
}
