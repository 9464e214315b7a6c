"""Statuses and events on a local file, and whom to tell of them."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ... import machine
from ...model import Status, status_from_json
from ..base import FOLLOWED_FOR, Words

KEPT = 10_000  # events


class Wake(NamedTuple):
    """A message for another client's mailbox."""

    client: str
    realm: str
    text: str


def iso_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Board:
    """For one operation, inside its transaction."""

    def __init__(self, db: sqlite3.Connection, now: int, client: str, realm: str) -> None:
        self._db, self._now, self._client, self._realm = db, now, client, realm
        self.wakes: dict[Wake, None] = {}

    # ------------------------------------------------------------------ events

    def follow(self) -> int:
        """The number of the last event so far."""
        self._db.execute("DELETE FROM followers WHERE until <= ?", (self._now,))
        self._db.execute(
            "INSERT OR REPLACE INTO followers VALUES (?, ?, ?)",
            (self._client, self._realm, self._now + FOLLOWED_FOR),
        )
        found = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return int(found[0]) if found else 0

    def tell(self, event: str, scope: str, record: str | None = None, **more: Any) -> None:
        followers = self._db.execute(
            "SELECT client, realm FROM followers WHERE until > ?", (self._now,)
        ).fetchall()
        if not followers:
            return
        said = {"event": event, "scope": scope, "record": record, "at": datetime.now(UTC).timestamp(), **more}
        row = self._db.execute("INSERT INTO events (event) VALUES (?)", (json.dumps(said),)).lastrowid
        self._db.execute("DELETE FROM events WHERE id <= ?", ((row or 0) - KEPT,))
        self.wakes.update((Wake(client, realm, "event"), None) for client, realm in followers)

    # ------------------------------------------------------------------ statuses

    def row(self, key: str) -> Any:
        """Value, details, the lock_id of the lease that it belongs to, and when it ends, or None."""
        return self._db.execute(
            "SELECT value, details, lock_id, expires FROM statuses WHERE key = ? AND expires > ?"
            " AND substr(realm, 1, ?) = ?",
            (key, self._now, len(machine.boot_id()), machine.boot_id()),
        ).fetchone()

    def status(self, key: str) -> Status:
        found = self.row(key)
        if found is None:
            return Status(key=key, output=None)
        value, details, _, expires = found
        return status_from_json(key, value, details, (expires - self._now) / 1000)

    def show(self, key: str, said: Words, expires: int, lock_id: str | None) -> None:
        details = f'{said.details[:-1]},"at":"{iso_now()}"}}'
        self._db.execute(
            "INSERT OR REPLACE INTO statuses VALUES (?, ?, ?, ?, ?, ?)",
            (key, said.value, details, lock_id, self._realm, expires),
        )
        self._changed(key)
        self.tell("progress", key, details)

    def prolong(self, key: str, lock_id: str, expires: int) -> None:
        self._db.execute(
            "UPDATE statuses SET expires = ? WHERE key = ? AND lock_id = ?", (expires, key, lock_id)
        )

    def end(self, key: str, lock_id: str) -> None:
        """The lease is over, and with it the progress."""
        if self._db.execute("DELETE FROM statuses WHERE key = ? AND lock_id = ?", (key, lock_id)).rowcount:
            self._changed(key)

    def take_away(self, key: str) -> None:
        if self._db.execute("DELETE FROM statuses WHERE key = ?", (key,)).rowcount:
            self._changed(key)
            self.tell("progress", key)

    def watch(self, key: str, look_in: int) -> None:
        """Who has not looked again by then, and a while, is not there any more."""
        row = (key, self._client, self._realm, self._now + look_in + FOLLOWED_FOR)
        self._db.execute("INSERT OR REPLACE INTO watchers VALUES (?, ?, ?, ?)", row)

    def _changed(self, key: str) -> None:
        """Whoever watches looks, and says then whether it goes on watching."""
        watching = self._db.execute("DELETE FROM watchers WHERE key = ? RETURNING client, realm", (key,))
        self.wakes.update((Wake(client, realm, f"status\n{key}"), None) for client, realm in watching)
