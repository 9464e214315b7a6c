"""The operations on a local file, each in one transaction."""

from __future__ import annotations

import os
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ... import machine
from ...errors import StoreUnavailable
from ...model import Holder, ScopeInfo, holder_from_json, waiter_from_json
from ..base import (
    Acquire,
    Break,
    Busy,
    Done,
    Gone,
    Granted,
    Operation,
    Queued,
    Refused,
    Release,
    Renew,
    Scopes,
    Show,
    new_client_id,
)

VERSION = 1
CLAIM_TIME = 500  # ms that a waiter has at least to claim what was handed to it
_SCHEMA = Path(__file__).with_name("schema.sql")
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


class Wake(NamedTuple):
    """A message for another client's mailbox."""

    client: str
    realm: str
    text: str


class _Replaced(Exception):
    """The file was deleted or replaced under us."""


class Engine:
    """One connection to the file. Not for two threads at once."""

    def __init__(self, file: Path, window: float) -> None:
        self._file = file
        self._path = str(file)
        self._window = round(window * 1000)
        self._db: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self.client = new_client_id()
        self.realm = machine.realm()
        self._pid = os.getpid()
        self._started = machine.started(self._pid)
        self._wakes: list[Wake] = []

    # ------------------------------------------------------------------ the file

    def run(self, op: Operation) -> tuple[Any, list[Wake]]:
        """The answer, and the messages that are to be sent now that it is so."""
        try:
            db = self._db or self._open()
            db.execute("BEGIN IMMEDIATE")
            try:
                if self._on_disk() != self._inode:
                    raise _Replaced
                self._wakes = []
                self._now = round(machine.now() * 1000)
                answer = self._answer(db, op)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except _Replaced:
            self.close()  # the others are in another file by now
            raise Busy from None
        except sqlite3.Error as error:
            raise self._failure(error) from error
        return answer, self._wakes

    def offers(self) -> list[tuple[str, str]]:
        """Scope and lock_id of everything that was handed to this client and waits to be claimed."""
        try:
            found = (self._db or self._open()).execute(
                "SELECT scope, lock_id FROM leases WHERE client = ? AND offered", (self.client,)
            )
            return list(found)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _open(self) -> sqlite3.Connection:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreUnavailable(
                f"Can't create the folder {self._file.parent}: {error.strerror}."
            ) from error
        db = sqlite3.connect(self._file, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise StoreUnavailable(
                    f"{self._file} was written by a newer version of Interlock: upgrade it."
                )
            if version < VERSION:
                self._create(db)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")  # after a power cut nobody holds anything
            self._sweep(db)
        except BaseException:
            db.close()
            raise
        self._db = db
        self._inode = self._on_disk()
        return db

    def _create(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version == 0:  # else somebody else was faster
                if db.execute("SELECT 1 FROM sqlite_master").fetchone():
                    raise StoreUnavailable(f"{self._file} is not a file of Interlock's.")
                for statement in _SCHEMA.read_text().split(";\n"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version={VERSION}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _sweep(self, db: sqlite3.Connection) -> None:
        """Clear away what crashed holders and waiters left on scopes that nobody asks for any more."""
        now, boot = round(machine.now() * 1000), machine.boot_id()
        try:
            for table in ("leases", "waiters"):
                db.execute(f"DELETE FROM {table} WHERE substr(realm, 1, ?) != ?", (len(boot), boot))
            db.execute("DELETE FROM leases WHERE expires <= ?", (now,))
            db.execute("DELETE FROM seen WHERE scope NOT IN (SELECT scope FROM waiters)")
        except sqlite3.OperationalError as error:
            if not isinstance(self._failure(error), Busy):
                raise

    def _on_disk(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _failure(self, error: sqlite3.Error) -> Exception:
        """What SQLite's complaint means to a user."""
        text = str(error)
        if "locked" in text or "busy" in text:
            return Busy()
        self.close()
        for sign, meaning in (
            ("readonly", "may not be written by this user, or lies on a read-only disk"),
            ("unable to open", "can't be opened: the file or its folder may not be written by this user"),
            ("full", "can't be written: the disk is full"),
            ("disk I/O", "can't be read or written: the disk is full or failing"),
            ("not a database", "is not a file of Interlock's"),
            ("malformed", "is damaged: stop all users of it and delete it"),
            ("no such table", "is not a file of Interlock's"),
        ):
            if sign in text:
                return StoreUnavailable(f"{self._file} {meaning} ({text}).")
        return StoreUnavailable(f"{self._file} failed: {text}.")

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    # ------------------------------------------------------------------ operations

    def _answer(self, db: sqlite3.Connection, op: Operation) -> Any:
        if isinstance(op, Acquire):
            return self._acquire(db, op)
        if isinstance(op, Release):
            return self._release(db, op)
        if isinstance(op, Renew):
            return self._renew(db, op)
        if isinstance(op, Break):
            return self._break(db, op.scope)
        if isinstance(op, Show):
            return self._show(db, op.scope)
        assert isinstance(op, Scopes)
        return [scope for (scope,) in db.execute("SELECT scope FROM leases UNION SELECT scope FROM waiters")]

    def _acquire(self, db: sqlite3.Connection, op: Acquire) -> Granted | Refused | Queued:
        leases = self._leases(db, op.scope)
        for lease in leases:
            if lease.lock_id == op.lock_id:
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
                at = holder_from_json(lease.record).locked_at
                return Granted(lease.fence, at or "", len(leases))
        me = _Waiter(
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
        line = db.execute("SELECT max(place) FROM waiters WHERE scope = ?", (op.scope,)).fetchone()[0]
        if line is None and _admits(leases, op.permits):
            return self._grant(db, op.scope, me, leases, offer=None)
        if not op.place:
            me = me._replace(place=max(time.time_ns() // 1000, (line or 0) + 1))
        forgotten = False
        if op.queue:
            me, is_new = self._join(db, op.scope, me)
            forgotten = is_new and bool(op.place)
        granted = self._hand_over(db, op.scope, leases, caller=op.lock_id if op.queue else None)
        if granted is not None:
            return granted
        head = self._first_living(db, op.scope)
        if not op.queue and head is None and _admits(leases, op.permits):
            return self._grant(db, op.scope, me, leases, offer=None)  # all who waited were dead
        holder = leases[0].holder(self._now) if leases else None
        if not op.queue:
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
        mine = [lease for lease in leases if lease.lock_id == op.lock_id]
        if mine:
            self._drop(db, op.scope, mine[0], leases)
            self._hand_over(db, op.scope, leases)
            return Done()
        was_head = self._first_living(db, op.scope)
        left = db.execute("DELETE FROM waiters WHERE scope = ? AND lock_id = ?", (op.scope, op.lock_id))
        if left.rowcount:
            self._forget_if_empty(db, op.scope)
            if was_head is not None and was_head.lock_id == op.lock_id:
                self._hand_over(db, op.scope, leases)
                self._tell_head(db, op.scope)
            return Done()
        # A permit that is not there may well have been released, whoever holds the others.
        alone = leases and leases[0].permits == 1
        return Gone(leases[0].holder(self._now) if alone else None)

    def _renew(self, db: sqlite3.Connection, op: Renew) -> Done | Gone:
        leases = self._leases(db, op.scope)
        if all(lease.lock_id != op.lock_id for lease in leases):
            return Gone(leases[0].holder(self._now) if leases else None)
        db.execute(
            "UPDATE leases SET expires = ? WHERE scope = ? AND lock_id = ?",
            (self._now + op.ttl, op.scope, op.lock_id),
        )
        head = self._first_living(db, op.scope)
        if head is not None:
            ends = [op.ttl, *(x.expires - self._now for x in leases if x.lock_id != op.lock_id)]
            self._wake(head, f"renewed\n{op.scope}\n{min(ends)}")
        return Done()

    def _break(self, db: sqlite3.Connection, scope: str) -> tuple[Holder, ...]:
        leases = self._leases(db, scope)
        lost = tuple(lease.holder(self._now) for lease in leases)
        for lease in list(leases):
            self._drop(db, scope, lease, leases)
        self._hand_over(db, scope, leases)
        return lost

    def _show(self, db: sqlite3.Connection, scope: str) -> ScopeInfo:
        leases = self._leases(db, scope)
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

    # ------------------------------------------------------------------ leases

    def _ends_with_process(self, lease: _Lease) -> bool:
        """Whether we can tell when the holder dies, and that would end the lease."""
        return bool(lease.bound or lease.offered) and lease.realm == self.realm

    def _is_alive(self, who: _Lease | _Waiter) -> bool:
        ourselves = who.pid == self._pid and who.started == self._started
        return ourselves or machine.alive(who.pid, who.started)

    def _leases(self, db: sqlite3.Connection, scope: str) -> list[_Lease]:
        """Those that stand; the others are cleared away."""
        standing = []
        found = db.execute(f"SELECT {_LEASE} FROM leases WHERE scope = ?", (scope,)).fetchall()
        for lease in map(_Lease._make, found):
            rebooted = not lease.realm.startswith(machine.boot_id())
            dead = self._ends_with_process(lease) and not self._is_alive(lease)
            if rebooted or dead or lease.expires <= self._now:
                db.execute("DELETE FROM leases WHERE scope = ? AND lock_id = ?", (scope, lease.lock_id))
            else:
                standing.append(lease)
        return standing

    def _drop(self, db: sqlite3.Connection, scope: str, lease: _Lease, leases: list[_Lease]) -> None:
        db.execute("DELETE FROM leases WHERE scope = ? AND lock_id = ?", (scope, lease.lock_id))
        leases.remove(lease)

    def _grant(
        self, db: sqlite3.Connection, scope: str, to: _Waiter, leases: list[_Lease], offer: int | None
    ) -> Granted:
        """`offer`: for how many ms the lease waits to be claimed; None grants it at once."""
        micros = time.time_ns() // 1000
        (fence,) = db.execute(
            "UPDATE high SET fence = max(fence + 1, ?) RETURNING fence", (micros,)
        ).fetchone()
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
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
        return Granted(fence, at, len(leases))

    # ------------------------------------------------------------------ the queue

    def _wake(self, to: _Waiter, text: str) -> None:
        self._wakes.append(Wake(to.client, to.realm, text))

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
            if (
                head.realm.startswith(machine.boot_id())
                and (head.realm != self.realm or self._is_alive(head))
                and self._patience(db, scope, head.client) > 0
            ):
                return head
            self._leave_queue(db, scope, head)

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
