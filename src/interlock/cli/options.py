"""The options that commands have in common, and the client that they lead to."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from .. import settings
from ..errors import InvalidInput
from ..settings import Settings

if TYPE_CHECKING:
    from ..threads import Interlock

IDENTITY = ("label", "execution_id", "workflow_id", "workflow_name")


class Parser(argparse.ArgumentParser):
    """What is wrong is one sentence, as for all other errors."""

    takes_command = False
    hint = ""

    def read(self, words: list[str]) -> argparse.Namespace:
        """A command of the user's stands behind two dashes, and is none of our business."""
        if not self.takes_command:
            return self.parse_args(words)
        end = words.index("--") if "--" in words else len(words)
        found = self.parse_args(words[:end])
        found.command = words[end + 1 :]
        return found

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(
            f"{message[:1].upper()}{message[1:].rstrip('.')}{self.hint}; see {self.prog} --help."
        )


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)  # else it imports shutil, and that all that compresses


@cache
def _columns() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def parser(name: str, summary: str, examples: str, parameters: str = "") -> Parser:
    made = Parser(
        prog=f"interlock {name}",
        description=f"{summary[:1].upper()}{summary[1:]}.",
        epilog=f"examples:\n{examples.rstrip()}",
        formatter_class=_Help,
        usage=f"interlock {name} {parameters}" if parameters else None,
        allow_abbrev=False,
    )
    made.add_argument(
        "--url", help="the store: redis://…, sqlite:///path, … (INTERLOCK_URL; else a local file)"
    )
    made.add_argument("--prefix", help="goes before every key in Redis")
    made.add_argument("--json", action="store_true", help="print JSON, and nothing else, on stdout")
    made.add_argument("--debug", action="store_true", help="show where an error comes from")
    return made


def seconds(text: str) -> float:
    try:
        return settings.seconds(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None


def add_identity(made: Parser) -> None:
    made.add_argument("--label", help="who you are, for others to see")
    for name in IDENTITY[1:]:
        made.add_argument(f"--{name.replace('_', '-')}", help=argparse.SUPPRESS)


def add_lease(made: Parser) -> None:
    made.add_argument(
        "--ttl", type=seconds, metavar="S", help="it ends S seconds after its last renewal (30)"
    )
    waiting = made.add_mutually_exclusive_group()
    waiting.add_argument("--wait", type=seconds, metavar="S", help="give up after S seconds in line (never)")
    waiting.add_argument("--fail-fast", action="store_true", help="don't wait at all")
    made.add_argument("--permits", type=int, default=1, metavar="N", help="up to N may hold it at a time (1)")
    made.add_argument("--lock-id", help="name the lease yourself; asking again with it gives the same lease")
    add_identity(made)


class Call:
    """One command as it was called: its arguments and settings."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments

    @cached_property
    def settings(self) -> Settings:
        return Settings(vars(self.arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.arguments, name)

    def client(self) -> Interlock:
        from ..threads import Interlock  # noqa: PLC0415 - not for --help

        return Interlock(self.settings["url"], prefix=self.settings["prefix"])

    def identity(self) -> dict[str, Any]:
        return {name: self.settings[name] for name in IDENTITY}

    def lease(self) -> dict[str, Any]:
        return {
            "ttl": self.settings["ttl"],
            "wait": 0 if self.fail_fast else self.settings["wait"],
            "permits": self.permits,
            "lock_id": self.lock_id,
            **self.identity(),
        }

    def say(self, answer: Any, words: Callable[[], str | None]) -> None:
        """The answer as JSON, or in words if there are any."""
        if self.json:
            from .output import to_json  # noqa: PLC0415

            print(to_json(answer))
        else:
            text = words()
            if text is not None:
                print(text)


def is_terminal(stream: Any) -> bool:
    return bool(stream and stream.isatty())


def hint(text: str) -> None:
    """For people only: a script reads what is on stdout."""
    if is_terminal(sys.stderr):
        print(text, file=sys.stderr)
