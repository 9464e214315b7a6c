"""Lets the threads of a process that wait for messages share one connection.

Whichever of them comes first reads for all, without a thread of its own in between; when it has what it
wanted, another takes over.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable

from . import machine


class Pump:
    def __init__(self, read: Callable[[float, int], list[object]]) -> None:
        """`read(seconds, bell)` waits for messages, or until the descriptor `bell` has something to read.

        It answers which waiters the messages concern.
        """
        self.lock = threading.RLock()
        self._read = read
        self._waiting: dict[int, threading.Condition] = {}
        self._reader: int | None = None
        self._bell: tuple[io.FileIO, io.FileIO] | None = None  # a pipe; whoever reads watches its end too

    def wait(self, waiter: object, ready: Callable[[], bool], time_left: Callable[[], float]) -> bool:
        """Until the waiter is ready or its time is up; answers whether it is ready."""
        key = id(waiter)
        with self.lock:
            mine = self._waiting[key] = threading.Condition(self.lock)
        try:
            while True:
                with self.lock:
                    if ready():
                        return True
                    left = min(time_left(), 3600.0)
                    if left <= 0:
                        return False
                    if self._reader is not None:
                        mine.wait(left)
                        continue
                    bell = self._open_bell()
                    self._reader = key
                concerned = self._read(left, bell.fileno())
                with self.lock:
                    self._reader = None
                    bell.read(4096)
                    for other in concerned:
                        self.poke(other)
        finally:  # Ctrl-C may come at any step
            with self.lock:
                self._waiting.pop(key, None)
                if self._reader == key:
                    self._reader = None
                self._appoint_reader()

    def _open_bell(self) -> io.FileIO:
        if self._bell is None:
            ends = os.pipe()
            for end in ends:
                os.set_blocking(end, False)
            self._bell = io.FileIO(ends[0], "r"), io.FileIO(ends[1], "w")
        return self._bell[0]

    def _appoint_reader(self) -> None:
        if self._reader is None:
            for condition in self._waiting.values():
                condition.notify()
                return

    def poke(self, waiter: object) -> None:
        """Let a waiter see for itself whether it is ready, or how long it may sleep now."""
        with self.lock:
            if id(waiter) == self._reader:
                self.ring()
            elif id(waiter) in self._waiting:
                self._waiting[id(waiter)].notify()

    def ring(self) -> None:
        """Make whoever reads begin anew."""
        with self.lock:
            if self._reader is not None and self._bell is not None:
                self._bell[1].write(b"!")

    def close(self) -> None:
        with self.lock:
            self.ring()
            if self._bell is not None and self._reader is None:
                for end in self._bell:
                    end.close()
                self._bell = None

    @staticmethod
    def deadline(seconds: float) -> Callable[[], float]:
        """The time left of so many seconds from now."""
        end = machine.now() + seconds
        return lambda: end - machine.now()
