"""The command line. Each command's module is imported when the command is called, for a quick start."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

from ..errors import (
    InterlockError,
    InvalidInput,
    LeaseLost,
    LimitExceeded,
    LockHeld,
    NotOwner,
    StoreUnavailable,
    WaitTimeout,
)

USAGE, UNAVAILABLE, LOST, IO_ERROR, HELD = 64, 69, 70, 74, 75
_CODES = (
    (InvalidInput, USAGE),
    (StoreUnavailable, UNAVAILABLE),
    ((LeaseLost, NotOwner), LOST),
    ((LockHeld, WaitTimeout, LimitExceeded), HELD),
)

# Name: module, and what it does.
COMMANDS = {
    "run": ("run", "hold a scope while a command runs"),
    "acquire": ("locks", "take a lease, and print its lock_id"),
    "renew": ("locks", "let a lease last longer"),
    "release": ("locks", "give a lease back"),
    "ls": ("looking", "list the scopes that are held or waited for"),
    "show": ("looking", "tell who holds a scope, and who waits"),
    "break": ("locks", "take a scope from whoever holds it"),
    "cleanup": ("locks", "free all that an execution holds"),
    "limit": ("limits", "ask a rate limit"),
    "once": ("limits", "succeed for the first caller only"),
    "status": ("status", "get, set, unset or watch a progress status"),
    "events": ("looking", "tell what happens, as it happens"),
    "top": ("top", "watch scopes, holders and progress live"),
    "doctor": ("doctor", "check the store and the configuration"),
    "completion": ("completion", "print a completion script for bash, zsh or fish"),
    "version": ("looking", "print the version"),
}

_HELP = """\
usage: interlock COMMAND …

Locks, semaphores, rate limits and progress, shared by commands, programs and n8n workflows.

{commands}

Every command takes --url (or INTERLOCK_URL), --json, and --help with examples.

  interlock run nightly -- ./backup.sh       one at a time, on all machines that share the store
"""


def help_text() -> str:
    lines = (f"  {name:<12}{summary}" for name, (_, summary) in COMMANDS.items())
    return _HELP.format(commands="\n".join(lines))


def main(arguments: list[str] | None = None) -> int:
    """Answers the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words[: words.index("--") if "--" in words else None]
    try:
        code = _call(words)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read us has enough
        _drop_output()
        return 128 + 13
    except KeyboardInterrupt:
        return 128 + 2
    except InterlockError as error:
        if debug:
            raise
        complain(str(error))
        return next(code for kinds, code in _CODES if isinstance(error, kinds))
    except OSError as error:
        if debug:
            raise
        _drop_output()
        complain(f"The system refuses: {error.strerror or error}.")
        return IO_ERROR
    return code


def _drop_output() -> None:
    """What is left unwritten must not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def complain(sentence: str) -> None:
    print(f"interlock: {sentence}", file=sys.stderr)


def _call(words: list[str]) -> int:
    before = _take_options(words)
    if not words or words[0] in ("-h", "--help", "help"):
        wanted = words[1:2] if words and words[0] == "help" else []
        if not wanted:
            print(help_text(), end="")
            return 0 if words else USAGE
        words = [*wanted, "--help"]
    if words[0] in ("-V", "--version"):
        words[0] = "version"
    name, *rest = words
    if name not in COMMANDS:
        raise InvalidInput(f"There is no command {name!r}; see interlock --help.")
    from .options import Call  # noqa: PLC0415 - argparse is slow to import, and nothing above needs it

    module = importlib.import_module(f".{COMMANDS[name][0]}", __package__)
    make_parser, action = module.COMMANDS[name]
    code: int = action(Call(make_parser().read([*before, *rest])))
    return code


def _take_options(words: list[str]) -> list[str]:
    """Options before the command are as good as behind it."""
    taken: list[str] = []
    while words and (words[0] in ("--json", "--debug") or words[0].startswith(("--url", "--prefix"))):
        taken.append(words.pop(0))
        if taken[-1] in ("--url", "--prefix") and words:
            taken.append(words.pop(0))
    return taken


def _open_streams() -> None:
    """Those that we were started without: else files that we open would take their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(opened, "w" if number else "r", closefd=False))  # noqa: SIM115


def entry() -> NoReturn:
    _open_streams()
    sys.exit(main())
