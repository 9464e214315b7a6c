"""Run the benchmarks side by side: `python -m benchmarks [name …] [--json FILE]`."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import os
import platform
import tempfile
import time
from pathlib import Path

from tests.servers import RedisServer

from .bench import Bench

NAMES = (
    "uncontended",
    "asynchronous",
    "handover",
    "waking",
    "queue_depth",
    "local_file",
    "limits",
    "startup",
)


def _environment(server: RedisServer) -> dict[str, str]:
    packages = ("redis", "hiredis", "python-redis-lock", "filelock", "limits", "throttled-py")
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
        "redis-server": server.version,
        "cores": str(os.cpu_count()),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}; none means all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")

    tables = {}
    with (
        contextlib.closing(RedisServer()) as server,
        tempfile.TemporaryDirectory(prefix="interlock-bench-") as folder,
    ):
        environment = _environment(server)
        print(", ".join(f"{name} {value}" for name, value in environment.items()))
        print("p50 and ratios are of the third of the rounds that was disturbed least, p99 of all rounds")
        for name in arguments.names or NAMES:
            start = time.monotonic()
            tables[name] = importlib.import_module(f".{name}", __package__).measure(
                Bench(server, Path(folder))
            )
            took, load = time.monotonic() - start, os.getloadavg()[0]
            print(f"\n{tables[name].text()}\n({took:.0f} s, load {load:.1f})", flush=True)
    targets = [row.target for table in tables.values() for row in table.rows if row.target]
    met = sum(target.met for target in targets)
    print(f"\n{met} of {len(targets)} targets met")
    if arguments.json:
        figures = {"environment": environment, **{name: t.as_json() for name, t in tables.items()}}
        arguments.json.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
