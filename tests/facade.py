"""AsyncInterlock behind the methods of Interlock, so that one test covers both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from interlock import AsyncInterlock, AsyncLease


class LeaseFacade:
    def __init__(self, run: Any, lease: AsyncLease) -> None:
        self._run = run
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    def release(self) -> Any:
        return self._run(self._lease.release())

    def renew(self, ttl: float | None = None) -> Any:
        return self._run(self._lease.renew(ttl))

    def progress(self, *words: Any, **options: Any) -> None:
        self._run(self._lease.progress(*words, **options))

    def __enter__(self) -> LeaseFacade:
        """Renews itself, as in an `async with`, but cancels nobody: each step here is a task of its own."""
        self._run(self._keep())
        return self

    async def _keep(self) -> None:
        self._lease._keep()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.release()


class FollowingFacade:
    """An async iterator as a plain one."""

    def __init__(self, run: Any, following: Any) -> None:
        self._run = run
        self._following = following

    def __iter__(self) -> FollowingFacade:
        return self

    def __next__(self) -> Any:
        async def one() -> Any:
            return await anext(self._following, None)

        item = self._run(one())
        if item is None:
            raise StopIteration
        return item

    def close(self) -> None:
        self._run(self._following.aclose())

    def __enter__(self) -> FollowingFacade:
        self._run(self._following.__aenter__())
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()


class LimitsFacade:
    def __init__(self, run: Any, client: AsyncInterlock) -> None:
        self._run = run
        self._limits = client.limit

    def __call__(self, scope: str, **options: Any) -> Any:
        async def ask() -> Any:
            return await self._limits(scope, **options)

        return self._run(ask())

    def peek(self, scope: str, **options: Any) -> Any:
        return self._run(self._limits.peek(scope, **options))

    def reset(self, scope: str, **options: Any) -> Any:
        return self._run(self._limits.reset(scope, **options))

    def all(self) -> Any:
        return self._run(self._limits.all())


class StatusesFacade:
    def __init__(self, run: Any, client: AsyncInterlock) -> None:
        self._run = run
        self._statuses = client.status

    def set(self, key: str, value: str, **options: Any) -> Any:
        return self._run(self._statuses.set(key, value, **options))

    def get(self, key: str) -> Any:
        return self._run(self._statuses.get(key))

    def unset(self, key: str, **options: Any) -> Any:
        return self._run(self._statuses.unset(key, **options))

    def begin(self, key: str, *words: str, **options: Any) -> LeaseFacade:
        async def begin() -> Any:
            return await self._statuses.begin(key, *words, **options)

        return LeaseFacade(self._run, self._run(begin()))

    def watch(self, key: str) -> FollowingFacade:
        return FollowingFacade(self._run, self._statuses.watch(key))


class LockFacade:
    """Enters and leaves an `async with` from a thread; each entry is a task of its own."""

    def __init__(self, run: Any, lock: Any) -> None:
        self._run = run
        self._lock = lock
        self._leave: asyncio.Event | None = None
        self._body: Any = None

    def __enter__(self) -> LeaseFacade:
        entered: Any = self._run(self._enter())
        if isinstance(entered, BaseException):
            raise entered
        return LeaseFacade(self._run, entered)

    async def _enter(self) -> Any:
        got: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()

        async def body() -> None:
            try:
                async with self._lock as lease:
                    got.set_result(lease)
                    assert self._leave is not None
                    await self._leave.wait()
            except BaseException as error:
                if got.done():
                    raise
                got.set_result(error)

        self._body = asyncio.ensure_future(body())
        return await got

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        async def leave() -> Any:
            assert self._leave is not None
            self._leave.set()
            return (await asyncio.gather(self._body, return_exceptions=True))[0]

        result = self._run(leave())
        if isinstance(result, BaseException) and error is None:
            raise result


class AsyncFacade:
    """Runs an AsyncInterlock on a loop in a thread of its own."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.client = AsyncInterlock(url, **options)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def lock(self, scope: str, **options: Any) -> LockFacade:
        return LockFacade(self.run, self.client.lock(scope, **options))

    def acquire(self, scope: str, **options: Any) -> LeaseFacade:
        return LeaseFacade(self.run, self.run(self.client.acquire(scope, **options)))

    def release(self, scope: str, lock_id: str) -> Any:
        return self.run(self.client.release(scope, lock_id))

    def renew(self, scope: str, lock_id: str, **options: Any) -> Any:
        return self.run(self.client.renew(scope, lock_id, **options))

    def break_(self, scope: str) -> Any:
        return self.run(self.client.break_(scope))

    def show(self, scope: str) -> Any:
        return self.run(self.client.show(scope))

    def locks(self) -> Any:
        return self.run(self.client.locks())

    def exclusive(self, scope: Any, **options: Any) -> Any:
        return self._decorating(self.client.exclusive(scope, **options))

    def _decorating(self, decorator: Any) -> Any:
        """Takes a plain function, so that a decorator's tests need no `await` either."""

        def decorate(function: Any) -> Any:
            @decorator
            async def wrapped(*args: Any, **kwargs: Any) -> Any:
                return await asyncio.to_thread(function, *args, **kwargs)

            return lambda *args, **kwargs: self.run(wrapped(*args, **kwargs))

        return decorate

    def limited(self, scope: Any, **options: Any) -> Any:
        return self._decorating(self.client.limited(scope, **options))

    @property
    def limit(self) -> LimitsFacade:
        return LimitsFacade(self.run, self.client)

    @property
    def status(self) -> StatusesFacade:
        return StatusesFacade(self.run, self.client)

    def once(self, key: str, **options: Any) -> Any:
        return self.run(self.client.once(key, **options))

    def cleanup(self, execution_id: str, scopes: Any = None) -> Any:
        return self.run(self.client.cleanup(execution_id, scopes))

    def events(self) -> FollowingFacade:
        return FollowingFacade(self.run, self.client.events())

    def close(self) -> None:
        self.run(self.client.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
