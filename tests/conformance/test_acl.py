"""The rights that docs/redis.md lists are enough."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest

import interlock
from interlock import AsyncInterlock, StoreUnavailable

from ..conftest import collecting, eventually
from ..servers import redis_binaries

DOCS = Path(__file__).parents[2] / "docs" / "redis.md"


def documented_rules():
    text = re.search(r"^ACL SETUSER interlock (.*?)```", DOCS.read_text(), re.MULTILINE | re.DOTALL)[1]
    return text.split()


def use_everything(connect, url):
    il = connect(url)
    lease = il.acquire("s", ttl=60)
    thread = threading.Thread(target=lambda: il.acquire("s", wait=30).release())
    thread.start()
    eventually(lambda: il.show("s").waiting)
    lease.renew()
    lease.release()
    thread.join(10)
    assert not thread.is_alive()
    il.acquire("t", permits=2).release()
    permit = il.acquire("t", permits=2, ttl=0.1)
    il.acquire("t", permits=2)
    permit_again = il.acquire("t", permits=2, wait=10)
    assert permit_again.fence > permit.fence
    assert len(il.locks()) == 1
    il.break_("t")
    with collecting(il.events()) as events:
        use_limits(il, url)
        use_status(il)
        eventually(lambda: any(event.event == "denied" for event in events))
    il.acquire("u", execution_id="77")
    assert il.cleanup("77", ["u", "v"]).cleaned_count == 1


def use_limits(il, url):
    for algorithm in ("fixed-window", "sliding-window", "gcra"):
        options = {"limit": 1, "per": 0.3, "algorithm": algorithm}
        for wait in (0, 0, 5):
            il.limit("api", **options, wait=wait)
        il.limit.peek("api", **options)
        give_up_waiting(url, options)
        il.limit.all()
        il.limit.reset("api", per=0.3, algorithm=algorithm)
    il.once("callback")


def give_up_waiting(url, options):
    async def main():
        async with AsyncInterlock(url) as il:

            async def wait():
                await il.limit("api", **options, wait=60)

            waiting = [asyncio.create_task(wait()) for _ in range(3)]
            await asyncio.sleep(0.05)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(main())


def use_status(il):
    il.status.set("import", "working")
    with il.status.watch("import") as watching:
        assert next(watching).output == "working"
        il.status.unset("import")
        assert next(watching).output is None
    il.status.begin("import").release()


@pytest.mark.parametrize("version", list(redis_binaries()))
def test_the_documented_rights_are_enough(clean_redis, connect, version):
    server = clean_redis(version)
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "interlock", *documented_rules())
    try:
        use_everything(connect, f"redis://interlock:password@127.0.0.1:{server.port}/0")
    finally:
        with server.client() as admin:
            admin.execute_command("ACL", "DELUSER", "interlock")


def test_every_command_of_the_scripts_is_documented():
    scripts = Path(interlock.__file__).parent / "stores" / "redis" / "scripts"
    used = {
        name.lower()
        for file in scripts.glob("*.lua")
        for name in re.findall(r"""\bcall\('([A-Z]+)'""", file.read_text())
    }
    assert len(used) > 15
    assert used <= {rule[1:] for rule in documented_rules() if rule.startswith("+")}


def test_a_missing_right_is_named(redis_server, connect):
    with redis_server.client() as admin:
        admin.execute_command(
            "ACL", "SETUSER", "poor", "on", ">password", "~*", "&*", "+hello", "+auth", "+client"
        )
    try:
        il = connect(f"redis://poor:password@127.0.0.1:{redis_server.port}/0")
        with pytest.raises(StoreUnavailable, match="does not permit this user"):
            il.acquire("s", wait=0)
    finally:
        with redis_server.client() as admin:
            admin.execute_command("ACL", "DELUSER", "poor")
