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
        """Takes a plain function, so that the decorator's tests need no `await` either."""

        def decorate(function: Any) -> Any:
            @self.client.exclusive(scope, **options)
            async def wrapped(*args: Any, **kwargs: Any) -> Any:
                return await asyncio.to_thread(function, *args, **kwargs)

            return lambda *args, **kwargs: self.run(wrapped(*args, **kwargs))

        return decorate

    def close(self) -> None:
        self.run(self.client.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
