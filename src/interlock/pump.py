"""Lets the threads of a process that wait for messages share one connection.

Whichever of them comes first reads for all, without a thread of its own in between; when it has what it
wanted, another takes over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from . import machine


class Pump:
    def __init__(self, read: Callable[[float], list[object]]) -> None:
        """`read` waits up to so many seconds for messages, and answers which waiters they concern."""
        self.lock = threading.RLock()
        self._read = read
        self._waiting: dict[int, threading.Condition] = {}
        self._reading = False

    def wait(self, waiter: object, ready: Callable[[], bool], time_left: Callable[[], float]) -> bool:
        """Until the waiter is ready or its time is up; answers whether it is ready."""
        key = id(waiter)
        with self.lock:
            mine = self._waiting[key] = threading.Condition(self.lock)
            try:
                while not ready():
                    left = min(time_left(), 3600.0)
                    if left <= 0:
                        return False
                    if self._reading:
                        mine.wait(left)
                    else:
                        self._read_for_all(left)
                return True
            finally:
                del self._waiting[key]
                self._appoint_reader()

    def _read_for_all(self, timeout: float) -> None:
        self._reading = True
        self.lock.release()
        try:
            concerned = self._read(timeout)
        finally:
            self.lock.acquire()
            self._reading = False
        for waiter in concerned:
            self.poke(waiter)

    def _appoint_reader(self) -> None:
        if not self._reading:
            for condition in self._waiting.values():
                condition.notify()
                return

    def poke(self, waiter: object) -> None:
        """Let a waiter see for itself whether it is ready, or how long it may sleep now."""
        with self.lock:
            condition = self._waiting.get(id(waiter))
            if condition is not None:
                condition.notify()

    @staticmethod
    def deadline(seconds: float) -> Callable[[], float]:
        """The time left of so many seconds from now."""
        end = machine.now() + seconds
        return lambda: end - machine.now()
