"""How long `interlock run x -- true` takes, beside flock and an empty Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from .bench import Bench
from .tables import Row, Table, at_most
from .timing import alternate

ROUNDS = 30
EMPTY = "python -c pass"
FLOCK = "flock FILE true"
ON_FILE = "interlock run x -- true, local file"
ON_REDIS = "interlock run x -- true, Redis"


def _command(*words: str, **environment: str) -> Callable[[], object]:
    # As wherever it is installed, modules are compiled once, not at every start.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def call() -> None:
        subprocess.run(words, env={**kept, **environment}, check=True, cwd="/")

    return call


def measure(bench: Bench) -> Table:
    interlock = str(Path(sys.executable).with_name("interlock"))
    run = (interlock, "run", "x", "--", "true")
    commands = {
        EMPTY: _command(sys.executable, "-c", "pass"),
        ON_FILE: _command(*run, INTERLOCK_URL=bench.file_url),
        ON_REDIS: _command(*run, INTERLOCK_URL=bench.redis.url),
    }
    flock = shutil.which("flock")
    if flock:
        commands[FLOCK] = _command(flock, str(bench.folder / "flock"), "true")
    took = alternate(commands, ROUNDS, 1)
    rows = []
    for name in commands:
        rows.append(Row(f"{name}, p50", took.p50(name) / 1000, "ms", took.ratio(name, EMPTY)))
    for name, limit in ((ON_FILE, 70), (ON_REDIS, 180)):
        rows.append(Row(name, took.p50(name) / 1000, "ms", None, at_most(took.p50(name) / 1000, limit, "ms")))
    times = took.ratio(ON_FILE, EMPTY)
    rows.append(Row(f"{ON_FILE}, to {EMPTY}", times, "times", None, at_most(times, 6, "times")))
    return Table(f"8. Start-up of the command line ({ROUNDS} rounds)", "python", rows)
