"""The database file: opening it, one transaction after the other, and what SQLite complains about."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ... import machine
from ...errors import StoreUnavailable
from ..base import OK, WARNING, Busy, Finding
from .limits import Limits

VERSION = 3
SCARCE = 50 * 2**20  # bytes
_SCHEMA = os.path.join(os.path.dirname(__file__), "schema.sql")

R = TypeVar("R")


class _Replaced(Exception):
    """The file was deleted or replaced under us."""


def sweep(db: sqlite3.Connection) -> None:
    """Clear away what crashed holders and waiters left on scopes that nobody asks for any more."""
    now, boot = round(machine.now() * 1000), machine.boot_id()
    for table in ("leases", "waiters", "statuses", "followers", "watchers"):
        db.execute(f"DELETE FROM {table} WHERE substr(realm, 1, ?) != ?", (len(boot), boot))
    for table in ("leases", "statuses"):
        db.execute(f"DELETE FROM {table} WHERE expires <= ?", (now,))
    for table in ("followers", "watchers"):
        db.execute(f"DELETE FROM {table} WHERE until <= ?", (now,))
    db.execute("DELETE FROM seen WHERE scope NOT IN (SELECT scope FROM waiters)")
    Limits(db).sweep()


class File:
    """One connection to the file. Not for two threads at once."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._db: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None

    def change(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Carry out some work in one transaction."""
        try:
            db = self._db or self._open()
            if db.in_transaction:  # an interruption has come at the worst moment
                db.execute("ROLLBACK")
            try:
                db.execute("BEGIN IMMEDIATE")
                if self._on_disk() != self._inode:
                    raise _Replaced
                answer = work(db)
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
        return answer

    def read(self, query: str, *values: object) -> list[Any]:
        try:
            return list((self._db or self._open()).execute(query, values))
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _open(self) -> sqlite3.Connection:
        try:
            os.makedirs(os.path.dirname(self._file), exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreUnavailable(
                f"Can't create the folder {os.path.dirname(self._file)}: {error.strerror}."
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
            try:
                sweep(db)
            except sqlite3.OperationalError as error:
                if not isinstance(self._failure(error), Busy):
                    raise
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
            if version < VERSION:  # else somebody else was faster
                if version == 0 and db.execute("SELECT 1 FROM sqlite_master").fetchone():
                    raise StoreUnavailable(f"{self._file} is not a file of Interlock's.")
                with open(_SCHEMA) as schema:
                    for statement in schema.read().split(";\n"):
                        db.execute(statement)
                db.execute(f"PRAGMA user_version={VERSION}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _on_disk(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._file)
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

    def findings(self) -> Iterator[Finding]:
        import shutil  # noqa: PLC0415 - for the doctor only
        from pathlib import Path  # noqa: PLC0415

        file = Path(self._file)
        size = sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*") if part.is_file())
        yield Finding("file", OK, f"{self._file}, {size // 1024} kB, SQLite {sqlite3.sqlite_version}")
        free = shutil.disk_usage(file.parent).free
        if free < SCARCE:
            yield Finding("disk", WARNING, f"only {free // 2**20} MB are free")

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
