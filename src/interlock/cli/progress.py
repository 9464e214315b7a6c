"""What a command prints, passed on untouched, and its progress read on the way."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator

from ..errors import InterlockError
from ..lease import Lease
from . import complain
from .process import Pipe

DESCRIPTORS = {"stdout": 1, "stderr": 2}
LINE = re.compile(rb"^\s*(\d{1,3}(?:\.\d+)?)\s*%\s*(\S*)\s*(.*?)\s*$")
LONGEST = 4096


def read_line(line: bytes) -> tuple[str, float, str | None] | None:
    """`40% loading page 4` as value, percent and message."""
    found = LINE.match(line[:LONGEST])
    if found is None or float(found[1]) > 100:
        return None
    value, message = (part.decode(errors="replace") for part in found.groups()[1:])
    return value or "working", float(found[1]), message or None


class _Reporter:
    """Writes the newest progress, as fast as the store takes it; what is older by then is left out."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._news = threading.Condition()
        self._newest: tuple[str, float, str | None] | None = None
        self._over = False
        self._thread = threading.Thread(target=self._report, daemon=True)
        self._thread.start()

    def tell(self, progress: tuple[str, float, str | None]) -> None:
        with self._news:
            self._newest = progress
            self._news.notify()

    def close(self) -> None:
        with self._news:
            self._over = True
            self._news.notify()
        self._thread.join()

    def _report(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._newest is not None or self._over)
                if self._newest is None:
                    return
                (value, percent, message), self._newest = self._newest, None
            with contextlib.suppress(InterlockError):  # its loss is told elsewhere, an outage passes
                self._lease.progress(value, percent, message)


@contextlib.contextmanager
def copying(lease: Lease, stream: str) -> Iterator[Pipe]:
    ours, theirs = os.pipe()
    reporter = _Reporter(lease)
    descriptor = DESCRIPTORS[stream]

    def copy() -> None:
        rest = b""
        while chunk := os.read(ours, 65536):
            if not _write(descriptor, chunk):
                break  # the command learns of it as if it had written there itself
            *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
            rest = rest[:LONGEST]
            for line in lines:
                if (progress := read_line(line)) is not None:
                    reporter.tell(progress)
        os.close(ours)

    copier = threading.Thread(target=copy, daemon=True)
    copier.start()
    try:
        yield Pipe(theirs, descriptor)
    finally:
        os.close(theirs)
        copier.join()  # also for what the command has left running, as in any pipe
        reporter.close()


def _write(descriptor: int, chunk: bytes) -> bool:
    try:
        while chunk:
            chunk = chunk[os.write(descriptor, chunk) :]
    except BrokenPipeError:
        return False
    except OSError as error:
        complain(f"The command's output can't be written: {error.strerror}.")
        return False
    return True
