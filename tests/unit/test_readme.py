"""The README's Python runs as it stands there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_every_example_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERLOCK_URL", f"sqlite://{tmp_path}/interlock.db")
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    names: dict[str, object] = {}
    for block in blocks:
        code = compile(block, str(README), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, names)
        if inspect.iscoroutine(running):
            asyncio.run(running)
