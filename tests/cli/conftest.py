from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

INTERLOCK = str(Path(sys.executable).with_name("interlock"))


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of somebody who has configured nothing."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    return {**clean, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": ""}


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `interlock …`; what still runs ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, **options: Any) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        options = {**pipes, "env": environment, "cwd": tmp_path, "text": True, **options}
        started.append(subprocess.Popen([INTERLOCK, *words], **options))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def interlock(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., Outcome]:
    """`interlock …` to its end."""

    def call(*words: str, **options: Any) -> Outcome:
        given = options.pop("given", "")
        process = start(*words, **options)
        out, err = process.communicate(given, timeout=60)
        return Outcome(process.returncode, out or "", err or "")

    return call
