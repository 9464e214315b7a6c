"""Frozen records with named fields.

As dataclasses are, but those cost a quick command a third of its time: they import `inspect`, and compile
methods for each class.
"""

from __future__ import annotations

from typing import Any, Self, dataclass_transform


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    _fields: tuple[str, ...] = ()
    _defaults: dict[str, Any] = {}  # noqa: RUF012 - each class has its own

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__annotations__)
        cls._defaults = {name: vars(cls)[name] for name in cls._fields if name in vars(cls)}

    def __init__(self, **values: Any) -> None:
        fields = vars(self)
        fields.update(self._defaults)
        fields.update(values)
        if len(fields) != len(self._fields) or not values.keys() <= set(self._fields):
            wrong = ", ".join(sorted(set(self._fields) ^ fields.keys()))
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._fields)}; wrong: {wrong}")

    def replace(self, **changes: Any) -> Self:
        return type(self)(**{**vars(self), **changes})

    def as_dict(self) -> dict[str, Any]:
        """Fields in their order; records inside are dictionaries too."""
        return {name: _plain(getattr(self, name)) for name in self._fields}

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} can't be changed")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self._fields)))

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({said})"


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.as_dict()
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
