"""Where a setting comes from: a flag, else INTERLOCK_<NAME>, else interlock.toml, else its default.

The file is looked for in the working folder and upwards, then in the user's configuration folder.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

from . import validate
from .errors import InvalidInput

FILE = "interlock.toml"
DEFAULTS: dict[str, Any] = {
    "url": None,
    "prefix": None,
    "ttl": 30.0,
    "wait": None,
    "grace": 10.0,
    "label": None,
    "execution_id": None,
    "workflow_id": None,
    "workflow_name": None,
}
SECONDS = ("ttl", "wait", "grace")
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Setting(NamedTuple):
    value: Any
    origin: str


def seconds(text: str) -> float:
    """`90`, `1.5`, `30s`, `5m`, `2h`, `1d`."""
    number = text.rstrip("smhd")
    try:
        found = float(number) * UNITS[text[len(number) :]]
    except (ValueError, KeyError):
        found = -1.0
    if not 0 <= found < validate.MAX_WAIT:
        raise InvalidInput(f"{text!r} is no time: write seconds, or 30s, 5m, 2h, 1d.")
    return found


class Settings:
    def __init__(self, flags: dict[str, Any]) -> None:
        self.file, self._in_file = _read_file()
        self._flags = flags

    def __getitem__(self, name: str) -> Any:
        return self.setting(name).value

    def setting(self, name: str) -> Setting:
        """Its value, and in words where that comes from."""
        if self._flags.get(name) is not None:
            return Setting(self._flags[name], f"--{name.replace('_', '-')}")
        variable = f"INTERLOCK_{name.upper()}"
        if os.environ.get(variable):
            return Setting(_as_meant(name, os.environ[variable], variable), variable)
        if name in self._in_file:
            return Setting(_as_meant(name, self._in_file[name], f"{name} in {self.file}"), str(self.file))
        return Setting(DEFAULTS[name], "default")


def _as_meant(name: str, value: Any, where: str) -> Any:
    if name not in SECONDS:
        if isinstance(value, str):
            return value
        raise InvalidInput(f"{where} must be text in quotes.")  # it may have a password in it
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InvalidInput(f"{where} must be a number of seconds, not {value!r}.")
    try:
        return seconds(str(value))
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def _find_file() -> str | None:
    folders = []
    with contextlib.suppress(OSError):  # the working folder may be gone
        folders.append(os.getcwd())
    while folders and folders[-1] != os.path.dirname(folders[-1]):
        folders.append(os.path.dirname(folders[-1]))
    config = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(config):
        config = os.path.expanduser("~/.config")
    folders.append(os.path.join(config, "interlock"))
    return next(filter(os.path.isfile, (os.path.join(folder, FILE) for folder in folders)), None)


def _read_file() -> tuple[str | None, dict[str, Any]]:
    file = _find_file()
    if file is None:
        return None, {}
    import tomllib  # noqa: PLC0415 - most people have no such file

    try:
        with open(file, "rb") as content:
            found = tomllib.load(content)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{file} can't be read: {error}.") from None
    # Tables are for others, a service or its alerts; but one of our name was meant for us.
    unknown = [
        name
        for name, value in found.items()
        if name not in DEFAULTS and (name == "interlock" or not _is_table(value))
    ]
    if unknown:
        raise InvalidInput(f"{file}: {unknown[0]!r} is no setting; there are {', '.join(DEFAULTS)}.")
    return file, found


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and all(isinstance(x, dict) for x in value))
