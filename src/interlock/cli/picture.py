"""What `top` shows: a picture of the store, what the user asks to see of it, and the lines that come of both.

Knows nothing of terminals: a key is a word, a line is text with the names of looks.
"""

from __future__ import annotations

import itertools
import sys
import textwrap
import time
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import InterlockError
from ..model import LimitInUse, ScopeInfo, Status
from .looking import in_words, name_of, row_of
from .output import duration, printable

WIDE = 72  # columns from which on there is room for all that there is to tell
BAR = 6
PAGE = 10


class Picture(NamedTuple):
    """What stood in the store at a moment."""

    url: str
    at: str
    scopes: tuple[ScopeInfo, ...]
    statuses: dict[str, Status]
    limits: tuple[LimitInUse, ...]

    @property
    def held(self) -> int:
        return sum(info.held for info in self.scopes)

    @property
    def waiting(self) -> int:
        return sum(info.waiting for info in self.scopes)

    def info(self, scope: str) -> ScopeInfo:
        free = ScopeInfo(scope=scope, held=False, count=0, holders=(), waiting=0, waiters=())
        return next((info for info in self.scopes if info.scope == scope), free)


# ---------------------------------------------------------------------- what is looked at


def _by_age(info: ScopeInfo) -> tuple[bool, str, str]:
    """Who has held for longest comes first, whose age nobody knows last."""
    since = info.holders[0].locked_at if info.holders else None
    return since is None, since or "", info.scope


ORDERS: dict[str, Callable[[ScopeInfo], Any]] = {
    "scope": lambda info: info.scope,
    "age": _by_age,
    "waiting": lambda info: (-info.waiting, info.scope),
}


class View(NamedTuple):
    """What the user has asked to see, and what there is to tell."""

    order: str = "scope"
    text: str = ""
    """Only what has it is listed."""
    typing: bool = False
    """Every key belongs to the text."""
    selected: str | None = None
    row: int = 0
    """Where the selected scope stood, for when it is gone."""
    details: str | None = None
    """The scope that is shown alone."""
    scroll: int = 0
    asks: str | None = None
    """The scope that is to be broken, if the next key is y."""
    breaks: str | None = None
    """It was y."""
    quits: bool = False
    says: str = ""
    trouble: str = ""


def listed(picture: Picture, view: View) -> list[ScopeInfo]:
    text = view.text.casefold()
    found = [info for info in picture.scopes if not text or text in " ".join(row_of(info)[:2]).casefold()]
    return sorted(found, key=ORDERS[view.order])


def _position(shown: list[ScopeInfo], view: View) -> int:
    scopes = [info.scope for info in shown]
    if view.selected in scopes:
        return scopes.index(view.selected)
    return max(0, min(view.row, len(scopes) - 1))


def hear(view: View, news: Picture | str | InterlockError) -> View:
    """A picture ends an outage, and is kept by the caller; a text is what has become of a break."""
    if isinstance(news, Picture):
        return view._replace(trouble="")
    if isinstance(news, InterlockError):
        return view._replace(trouble=printable(str(news)))
    return view._replace(says=printable(news))


# ---------------------------------------------------------------------- what a key does

_STEPS = {
    "up": -1,
    "k": -1,
    "down": 1,
    "j": 1,
    "page up": -PAGE,
    "page down": PAGE,
    "home": -sys.maxsize,
    "end": sys.maxsize,
}


def press(view: View, key: str, picture: Picture) -> View:
    """`key` is a character, or the name of a key that has none."""
    view = view._replace(says="")
    if view.asks is not None:
        if key in ("y", "Y"):
            return view._replace(asks=None, breaks=view.asks)
        return view._replace(asks=None, says="Nothing was changed.")
    if view.typing:
        return _type(view, key)
    if key == "q":
        return view._replace(quits=True)
    shown = listed(picture, view)
    here = _position(shown, view)
    if key == "b":
        scope = view.details or (shown[here].scope if shown else None)
        if scope is None or not picture.info(scope).held:
            return view._replace(says="There is nothing to break.")
        return view._replace(asks=scope)
    if view.details is not None:
        if key in _STEPS:
            last = len(in_words(picture.info(view.details)).splitlines()) - 1
            return view._replace(scroll=_within(view.scroll + _STEPS[key], last))
        return view._replace(details=None, scroll=0) if key in ("escape", "enter") else view
    if key in _STEPS:
        here = _within(here + _STEPS[key], len(shown) - 1)
        return view._replace(row=here, selected=shown[here].scope if shown else None)
    if key == "s":
        orders = list(ORDERS)
        return view._replace(order=orders[(orders.index(view.order) + 1) % len(orders)])
    if key == "/":
        return view._replace(typing=True)
    if key == "escape":
        return view._replace(text="")
    if key == "enter" and shown:
        return view._replace(details=shown[here].scope, selected=shown[here].scope, row=here)
    return view


def _within(number: int, last: int) -> int:
    return max(0, min(number, last))


def _type(view: View, key: str) -> View:
    if key == "enter":
        return view._replace(typing=False)
    if key == "escape":
        return view._replace(typing=False, text="")
    if key == "backspace":
        return view._replace(text=view.text[:-1])
    return view._replace(text=view.text + key) if len(key) == 1 and key.isprintable() else view


# ---------------------------------------------------------------------- how it looks

Span = tuple[str, str]
"""Text, and how it looks: "", "bold", "dim", "selected", "good" or "warning"."""
Line = list[Span]


def draw(picture: Picture, view: View, width: int, height: int) -> list[Line]:
    """At most `height` lines of at most `width` cells."""
    notes = _notes(picture, view, width)
    room = max(0, height - 3 - len(notes))
    if view.details is not None:
        title, body = _details(picture, view, width, room)
    else:
        limits = _limits(picture, view, width, room // 3)
        title, body = _list(picture, view, width, room - len(limits))
        body += [[] for _ in range(room - len(limits) - len(body))] + limits
    body += [[] for _ in range(room - len(body))]
    lines = [_header(picture, width), title, *body, *notes]
    return [*lines[: height - 1], _footer(picture, view, width)]


def _header(picture: Picture, width: int) -> Line:
    right = f"{picture.held} held  {picture.waiting} waiting  {picture.at}"
    left = max(0, width - len(right) - 2)
    return [(_fill(printable(picture.url), left), "bold"), (_cut(f"  {right}", width), "")]


def _list(picture: Picture, view: View, width: int, room: int) -> tuple[Line, list[Line]]:
    shown = listed(picture, view)
    if not shown:
        empty = f"No scope has {printable(view.text)!r}." if view.text else "Nothing is held or waited for."
        return [], [[(_cut(empty, width), "")]]
    here = _position(shown, view)
    first = _within(here - room // 2, len(shown) - room)
    columns = _WIDE if width >= WIDE else _NARROW
    return _table(columns, shown[first : first + room], picture, width, here - first)


def _limits(picture: Picture, view: View, width: int, room: int) -> list[Line]:
    """Those of which most is used, in so many lines."""
    text = view.text.casefold()
    found = [limit for limit in picture.limits if text in limit.scope.casefold()]
    if not found or room < 3:
        return []
    found.sort(key=lambda limit: -limit.used)
    shown = found if len(found) <= room - 2 else found[: room - 3]
    title, body = _table(_LIMITS if width >= WIDE else _NARROW_LIMITS, shown, picture, width)
    if len(shown) < len(found):
        body.append([(_cut(f"and {len(found) - len(shown)} more; / finds them", width), "dim")])
    return [[], title, *body]


def _table(
    columns: tuple[_Column, ...],
    subjects: list[Any],
    picture: Picture,
    width: int,
    selected: int | None = None,
) -> tuple[Line, list[Line]]:
    gap = "  " if width >= WIDE else " "
    cells = [[column.cell(subject, picture) for column in columns] for subject in subjects]
    widths = _widths(columns, cells, width - len(gap) * (len(columns) - 1))
    title = gap.join(_fill(column.title, size) for column, size in zip(columns, widths, strict=True))
    body = []
    for number, (subject, row) in enumerate(zip(subjects, cells, strict=True)):
        *texts, last = [_fill(cell, size) + gap for cell, size in zip(row, widths, strict=True)]
        texts.append(last.rstrip())
        if number == selected:
            body.append([(_fill("".join(texts), width), "selected")])
        else:
            styles = [column.style(subject) for column in columns]
            body.append(_cut_line(list(zip(texts, styles, strict=True)), width))
    return [(_cut(title.rstrip(), width), "dim")], body


def _details(picture: Picture, view: View, width: int, room: int) -> tuple[Line, list[Line]]:
    assert view.details is not None
    info = picture.info(view.details)
    title, *words = in_words(info).splitlines()
    if info.scope in picture.statuses:
        words.append(f"  progress  {_progress(info, picture)}")
    lines: list[str] = []
    for text in words:
        hanging = " " * min(12, width // 4)
        lines += textwrap.wrap(text, max(20, width), subsequent_indent=hanging, break_on_hyphens=False)
    first = _within(view.scroll, len(lines) - room)
    return [(_cut(title, width), "bold")], [[(_cut(text, width), "")] for text in lines[first : first + room]]


def _notes(picture: Picture, view: View, width: int) -> list[Line]:
    notes = []
    if view.trouble:
        notes.append((f"As of {picture.at}, trying again: {view.trouble}", "warning"))
    if view.says:
        notes.append((view.says, "good"))
    elif view.text and not view.typing:
        notes.append((f"Only what has {printable(view.text)!r}; Esc shows all.", "dim"))
    return [[(_cut(text, width), look)] for text, look in notes or [("", "")]]


def _footer(picture: Picture, view: View, width: int) -> Line:
    if view.asks is not None:
        who = " and ".join(map(name_of, picture.info(view.asks).holders)) or "nobody any more"
        answers = " [y/n]"
        question = f"Break {printable(view.asks)}, held by {who}?"
        return [(_cut(_cut(question, width - len(answers)) + answers, width), "warning")]
    if view.typing:
        return [(_cut(f"/{printable(view.text)}", width - 1), "bold"), (" ", "selected")]
    if view.details is not None:
        keys = [("Esc", "back"), ("b", "break"), ("↓↑", "scroll"), ("q", "quit")]
    else:
        others = [("/", "filter"), ("Enter", "more"), ("↓↑", "move"), ("s", f"sort ({view.order})")]
        keys = [("q", "quit"), ("b", "break"), *others]
    line: Line = []
    for key, does in keys:
        more: Line = [(key, "bold"), (f" {does}  ", "dim")]
        if sum(_cells(text) for text, _ in line + more) - 2 <= width:
            line += more
    return _cut_line(line, width)


class _Column(NamedTuple):
    title: str
    cell: Callable[[Any, Picture], str]
    style: Callable[[Any], str] = lambda subject: ""
    gives_way: bool = False
    least: int = 0


def _progress(info: ScopeInfo, picture: Picture) -> str:
    status = picture.statuses.get(info.scope)
    if status is None:
        return ""
    words = printable(f"{status.output}: {status.message}" if status.message else status.output or "")
    percent = _percent(status)
    if percent is None:
        return words
    done = int(percent * BAR // 100)
    return f"{'█' * done}{'░' * (BAR - done)} {percent:3.0f} % {words}"


def _done(info: ScopeInfo, picture: Picture) -> str:
    """The progress where there is little room."""
    status = picture.statuses.get(info.scope)
    if status is None:
        return ""
    percent = _percent(status)
    return printable(status.output or "") if percent is None else f"{percent:.0f}%"


def _percent(status: Status) -> float | None:
    """Others may write what they like."""
    percent: Any = status.percent
    return percent if isinstance(percent, (int, float)) and 0 <= percent <= 100 else None


def _brief(duration: str) -> str:
    """As in `3 min` for `3 min 20 s`."""
    return " ".join(duration.split()[:2])


def _waiting_style(info: ScopeInfo) -> str:
    return "warning" if info.waiting else ""


_SCOPE = _Column("SCOPE", lambda info, _: row_of(info)[0], gives_way=True)
_HELD_BY = _Column("HELD BY", lambda info, _: row_of(info)[1], gives_way=True)
_FOR = _Column("FOR", lambda info, _: _brief(row_of(info)[2]), least=6)
_WIDE = (
    _SCOPE,
    _HELD_BY,
    _FOR,
    _Column("ENDS IN", lambda info, _: _brief(row_of(info)[3])),
    _Column("PROGRESS", _progress, lambda info: "good", gives_way=True),
    _Column("WAITING", lambda info, _: row_of(info)[4], _waiting_style),
)
_NARROW = (
    _SCOPE,
    _HELD_BY,
    _FOR,
    _Column("DONE", _done, lambda info: "good", gives_way=True),
    _Column("WAIT", lambda info, _: row_of(info)[4], _waiting_style),
)


def _per(limit: LimitInUse) -> str:
    return duration(limit.per) if limit.per >= 1 else f"{limit.per:g} s"


_LIMIT = _Column("LIMIT", lambda limit, _: printable(limit.scope), gives_way=True)
_PER = _Column("PER", lambda limit, _: _per(limit), least=6)
_USED = _Column("USED", lambda limit, _: str(limit.used), least=6)
_FREE_IN = _Column("FREE IN", lambda limit, _: _brief(duration(limit.reset_at - time.time())))
_LIMITS = (_LIMIT, _Column("ALGORITHM", lambda limit, _: limit.algorithm), _PER, _USED, _FREE_IN)
_NARROW_LIMITS = (_LIMIT, _PER, _USED, _FREE_IN)


def _widths(columns: tuple[_Column, ...], cells: list[list[str]], room: int) -> list[int]:
    """The widest of those that give way do so until a row fits."""
    widths = [
        max(column.least, *map(_cells, (column.title, *(row[number] for row in cells))))
        for number, column in enumerate(columns)
    ]
    flexible = [number for number, column in enumerate(columns) if column.gives_way]
    while sum(widths) > room:
        widest = max(flexible, key=lambda number: widths[number])
        if widths[widest] <= 4:
            break
        widths[widest] -= 1
    return widths


# A character takes one cell of the terminal, or none, or two.


def _cell(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cells(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_cell, text))


def _cut(text: str, width: int) -> str:
    if _cells(text) <= width:
        return text
    ends = itertools.accumulate(map(_cell, text))
    return text[: sum(end < width for end in ends)] + ("…" if width > 0 else "")


def _fill(text: str, width: int) -> str:
    text = _cut(text, width)
    return text + " " * (width - _cells(text))


def _cut_line(line: Line, width: int) -> Line:
    cut: Line = []
    for text, style in line:
        cut.append((_cut(text, width), style))
        width -= _cells(cut[-1][0])
    return cut
