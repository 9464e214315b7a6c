"""Four processes want the same spreadsheet. Interlock lets one at a time have it, in the order they came."""

from __future__ import annotations

import multiprocessing
import sys
import time

from interlock import Interlock, LockHeld


def work(name: str) -> None:
    il = Interlock()  # INTERLOCK_URL, else a file of your own
    print(f"{name:5} wants excel-42")
    with il.lock("excel-42", wait=60, label=name) as lease:
        print(f"{name:5} has it      (fence {lease.fence})")
        time.sleep(0.4)
        print(f"{name:5} is done")


def main() -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(name,)) for name in ("red", "green", "blue", "grey")]
    for worker in workers:
        worker.start()

    il = Interlock()
    while not il.show("excel-42").held:
        time.sleep(0.01)
    try:
        il.acquire("excel-42", wait=0)
    except LockHeld as refused:
        print(f"I do not wait: {refused}")

    for worker in workers:
        worker.join()
    print(f"Nobody holds it any more. All of it went through {il.url}")
    sys.exit(any(worker.exitcode for worker in workers))


if __name__ == "__main__":
    main()
