"""What a benchmark is given: a Redis of its own and a folder on a disk."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.servers import RedisServer


class Bench(NamedTuple):
    redis: RedisServer
    folder: Path

    @property
    def file_url(self) -> str:
        return f"sqlite://{self.folder / 'interlock.db'}"
