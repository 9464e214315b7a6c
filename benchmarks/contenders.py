"""The locks that are compared. Each maker connects to one place and answers a function that, called with a
name, answers something to hold in a `with`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import filelock
import redis
import redis_lock

from interlock import Interlock

Locks = Callable[[str], AbstractContextManager[Any]]


def interlock(url: str) -> Locks:
    return Interlock(url).lock


def redis_py(url: str, sleep: float = 0.1) -> Locks:
    client = redis.Redis.from_url(url)
    return lambda name: client.lock(f"redis-py-{name}", timeout=30, sleep=sleep)


def redis_py_eager(url: str) -> Locks:
    return redis_py(url, sleep=0.001)


def python_redis_lock(url: str) -> Locks:
    client = redis.Redis.from_url(url)
    return lambda name: redis_lock.Lock(client, name, expire=30)


def file_lock(folder: str) -> Locks:
    return lambda name: filelock.FileLock(Path(folder) / f"{name}.lock")
