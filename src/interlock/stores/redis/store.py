"""What the Redis store is for threads and tasks alike; they differ in how they send and receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import StoreUnavailable
from ..base import Gone, Operation, Queued, Release, Seen, Signal, new_client_id
from .commands import Commands
from .connect import Connector, ErrorReply, refusal

if TYPE_CHECKING:
    from .. import _RedisConfig

ATTEMPTS = 3


class RedisStoreBase:
    def __init__(self, config: _RedisConfig) -> None:
        self._connector = Connector(config)
        self._commands = Commands(config.layout, round(config.window * 1000), round(config.grace * 1000))
        self._commands.client = new_client_id()
        self._tracks = False
        self._follows = False  # whether anybody here wants to be told of all events
        self._hears_events = False  # whether the listening connection is

    def _read(self, operation: Operation, reply: Any, resent: bool = False) -> Any:
        """What a reply means."""
        self._refuse_error(reply)
        answer = self._commands.decode(operation, reply)
        if resent and isinstance(operation, Release) and not operation.fence and isinstance(answer, Gone):
            if answer.holder is None:
                return answer  # given up by now, by whichever of the tries
            # Without a fence the server can't tell whether the first has done it.
            raise StoreUnavailable(
                f"Lost the Redis at {self._connector.shown} during the release; the scope has been given up,"
                " or had been lost before.",
                maybe_done=True,
            )
        return answer

    def _refuse_error(self, reply: Any) -> None:
        if isinstance(reply, ErrorReply):
            raise refusal(reply, self._connector.shown) from reply

    def _read_untracked(self, answer: Any) -> Any:
        """The answer to a look, where the server does not tell of touches: look more often then."""
        if isinstance(answer, (Queued, Seen)) and not self._tracks:
            return answer._replace(look_in=min(answer.look_in, 1000))
        return answer

    def _lost(self, error: BaseException) -> StoreUnavailable:
        return StoreUnavailable(
            f"Lost the Redis at {self._connector.shown}: {str(error).rstrip('.')}.", maybe_done=True
        )

    def _cut_off(self) -> list[Signal]:
        """The listening connection is lost, with what it would have said."""
        return [("all",), ("gap",)] if self._hears_events else [("all",)]

    def unwatch(self, scope: str) -> None:
        """Nothing to do: tracking ends with the next touch."""

    def hold_still(self) -> None:
        """Nothing to do before a fork: the child opens connections of its own."""

    def go_on(self) -> None:
        """Likewise after it."""

    def forget(self) -> None:
        """Likewise in the child."""
