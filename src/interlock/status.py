"""`il.status`: progress for others to read, and jobs of which only one runs at a time."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from .following import AsyncFollowing, Following
from .model import Status, StatusChanged
from .protocol import leases, status
from .protocol.leases import Fields, Identity, Request
from .protocol.status import DEFAULT_TIMEOUT, Progress, Watcher
from .stores.base import Words

if TYPE_CHECKING:
    from .async_lease import AsyncLease
    from .lease import Lease
    from .tasks import AsyncInterlock
    from .threads import Interlock


class StatusOptions(Identity, Progress, total=False):
    """What `set` and `begin` take besides key, value and timeout."""

    lock_id: str | None


def _split(options: StatusOptions) -> tuple[str | None, Progress, Identity]:
    identity = options.copy()
    lock_id = identity.pop("lock_id", None)
    progress = Progress(percent=identity.pop("percent", None), message=identity.pop("message", None))
    return lock_id, progress, identity


def _said(value: str, options: StatusOptions) -> Words:
    lock_id, progress, identity = _split(options)
    return status.words(Fields.of(**identity), lock_id, value, **progress)


def _job(key: str, value: str, timeout: float, options: StatusOptions) -> tuple[Request, Words]:
    lock_id, progress, identity = _split(options)
    asked = leases.request(key, renews=False, ttl=timeout, wait=0, lock_id=lock_id, **identity)
    return asked, status.words(asked.fields, asked.lock_id, value, **progress)


class Statuses:
    """Progress, by `Interlock`."""

    def __init__(self, client: Interlock) -> None:
        self._client = client

    def set(
        self, key: str, value: str, *, timeout: float = DEFAULT_TIMEOUT, **options: Unpack[StatusOptions]
    ) -> StatusChanged:
        """Write it for `timeout` seconds.

        percent, message: more of it. execution_id, workflow_id, workflow_name, label: who writes it.
        lock_id: of the lease whose progress it is, and with which it ends; without it, `NotOwner` if the
        status is the progress of somebody's lease.
        """
        flow = status.set_status(key, _said(value, options), timeout, options.get("lock_id"))
        return self._client._run(flow)

    def get(self, key: str) -> Status:
        """What stands there; its `output` is None if nothing does."""
        return self._client._run(status.get_status(key))

    def unset(self, key: str, *, lock_id: str | None = None) -> StatusChanged:
        """Take it away. lock_id: of a job that has begun, which ends then."""
        return self._client._run(status.unset_status(key, lock_id))

    def begin(
        self,
        key: str,
        value: str = "working",
        *,
        timeout: float = DEFAULT_TIMEOUT,
        **options: Unpack[StatusOptions],
    ) -> Lease:
        """Get, then set, in one step: the first caller has the job, all others `LockHeld` with its status.

        The job is a lease on the scope of that name, with a status. In a `with` block it renews itself, and
        is over at the end; without, it ends with its timeout or by `release`. Takes what `set` takes.
        """
        return self._client._hold(status.begin(*_job(key, value, timeout, options)))

    def watch(self, key: str) -> Following[Watcher, Status]:
        """The status now, and again whenever it changes. Whoever falls behind gets the newest."""
        return Following(self._client, Watcher(key), status.next_status)


class Begun:
    """A job that is to begin, for `await` or `async with`."""

    def __init__(self, client: AsyncInterlock, job: Request, said: Words) -> None:
        self._client, self._job, self._said = client, job, said
        self._lease: AsyncLease | None = None

    def __await__(self) -> Generator[Any, Any, AsyncLease]:
        return self._client._hold(status.begin(self._job, self._said)).__await__()

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self
        return await self._lease.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lease is not None
        await self._lease.__aexit__(kind, error, trace)


class AsyncStatuses:
    """Progress, by `AsyncInterlock`."""

    def __init__(self, client: AsyncInterlock) -> None:
        self._client = client

    async def set(
        self,
        key: str,
        value: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - the status's, not the call's
        **options: Unpack[StatusOptions],
    ) -> StatusChanged:
        """As `Statuses.set`."""
        flow = status.set_status(key, _said(value, options), timeout, options.get("lock_id"))
        return await self._client._run(flow)

    async def get(self, key: str) -> Status:
        """As `Statuses.get`."""
        return await self._client._run(status.get_status(key))

    async def unset(self, key: str, *, lock_id: str | None = None) -> StatusChanged:
        """As `Statuses.unset`."""
        return await self._client._run(status.unset_status(key, lock_id))

    def begin(
        self,
        key: str,
        value: str = "working",
        *,
        timeout: float = DEFAULT_TIMEOUT,
        **options: Unpack[StatusOptions],
    ) -> Begun:
        """As `Statuses.begin`: `await il.status.begin(…)`, or `async with il.status.begin(…) as job:`."""
        return Begun(self._client, *_job(key, value, timeout, options))

    def watch(self, key: str) -> AsyncFollowing[Watcher, Status]:
        """As `Statuses.watch`: `async for status in il.status.watch("import"): …`."""
        return AsyncFollowing(self._client, Watcher(key), status.next_status)
