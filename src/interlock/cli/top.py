"""top: who holds and waits for what, live on a terminal."""

from __future__ import annotations

import contextlib
import curses
import locale
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

from .. import machine
from ..errors import InterlockError, InvalidInput
from .looking import name_of
from .options import Call, Parser, is_terminal, parser
from .output import plain
from .picture import Picture, View, draw, hear, press

if TYPE_CHECKING:
    from ..threads import Interlock

EVERY = 1.0  # seconds from one look at the store to the next
REST = 4  # times as long as a look took, should that be longer: a large store has other things to do
BLINK = 100  # ms that a key is waited for before news are looked for


def gather(il: Interlock) -> Picture:
    scopes = tuple(il.locks())
    statuses = {}
    for info in scopes:
        with contextlib.suppress(InvalidInput):  # others may hold what is no name for a status
            if info.held and (status := il.status.get(info.scope)).output is not None:
                statuses[info.scope] = status
    return Picture(il.url, f"{datetime.now():%H:%M:%S}", scopes, statuses, tuple(il.limit.all()))


def take_away(il: Interlock, scope: str) -> str:
    """Break it, and say what has become of that."""
    try:
        done = il.break_(scope)
    except InterlockError as error:
        return f"{scope}: {error}"
    who = " and ".join(map(name_of, done.holders))
    return f"{scope}: taken from {who}." if done.broken else f"Nobody held {scope}."


def as_json(picture: Picture) -> dict[str, Any]:
    return {
        "url": picture.url,
        "held": picture.held,
        "waiting": picture.waiting,
        "scopes": [
            {**plain(info), "status": plain(picture.statuses.get(info.scope))} for info in picture.scopes
        ],
        "limits": plain(picture.limits),
    }


class _Reporter:
    """Asks the store in a thread of its own, so that a store that is slow or away delays no key."""

    def __init__(self, il: Interlock) -> None:
        self._il = il
        self.owes = 0  # answers to breaks
        self._to_break: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def break_(self, scope: str) -> None:
        self.owes += 1
        self._to_break.put(scope)

    def news(self) -> Iterator[Picture | str | InterlockError]:
        while not self._news.empty():
            one = self._news.get()
            if isinstance(one, Exception) and not isinstance(one, InterlockError):
                raise one
            self.owes -= isinstance(one, str)
            yield one

    def _work(self) -> None:
        pause = EVERY
        while True:
            try:
                with contextlib.suppress(queue.Empty):
                    self._news.put(take_away(self._il, self._to_break.get(timeout=pause)))
                began = machine.now()
                self._news.put(gather(self._il))
                pause = max(EVERY, REST * (machine.now() - began))
            except Exception as error:
                self._news.put(error)


class _Ended(BaseException):
    """By a signal."""

    def __init__(self, number: int) -> None:
        self.number = number


def _end(number: int, frame: FrameType | None) -> None:
    raise _Ended(number)


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_NAMES = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_PPAGE: "page up",
    curses.KEY_NPAGE: "page down",
    curses.KEY_HOME: "home",
    curses.KEY_END: "end",
    curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "backspace",
    "\n": "enter",
    "\r": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x1b": "escape",
}


_PLAIN = str.maketrans({"█": "#", "░": "-", "…": "~", "↓": "j", "↑": "k"})


class _Terminal:
    def __init__(self, screen: curses.window) -> None:
        self._screen = screen
        # The encoding is that of the locale, which may lack what a bar is made of.
        self._plain = screen.encoding.lower().replace("-", "") != "utf8"
        self._looks = {"bold": curses.A_BOLD, "dim": curses.A_DIM, "selected": curses.A_REVERSE}
        if curses.has_colors() and not os.environ.get("NO_COLOR"):
            curses.start_color()
            curses.use_default_colors()
            for number, (look, colour) in enumerate(
                (("good", curses.COLOR_GREEN), ("warning", curses.COLOR_YELLOW)), 1
            ):
                curses.init_pair(number, colour, -1)
                self._looks[look] = curses.color_pair(number)

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> Iterator[_Terminal]:
        """However this ends, the terminal is as before."""
        before = {number: signal.signal(number, _end) for number in _ENDING}
        try:
            with contextlib.suppress(locale.Error):  # a locale that is not installed
                locale.setlocale(locale.LC_ALL, "")
            screen = curses.initscr()
            try:
                curses.noecho()
                curses.cbreak()
                curses.set_escdelay(25)
                with contextlib.suppress(curses.error):  # a terminal may not be able to
                    curses.curs_set(0)
                screen.keypad(True)
                screen.timeout(BLINK)
                yield cls(screen)
            finally:
                for number in _ENDING:
                    signal.signal(number, signal.SIG_IGN)  # nothing comes between
                with contextlib.suppress(curses.error):  # it is gone itself
                    curses.endwin()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def show(self, picture: Picture, view: View) -> None:
        height, width = self._screen.getmaxyx()
        self._screen.erase()
        for number, line in enumerate(draw(picture, view, width, height)):
            with contextlib.suppress(curses.error):  # behind the last cell there is none for the cursor
                self._screen.move(number, 0)
                for text, look in line:
                    self._screen.addstr(self._in_its_encoding(text), self._looks.get(look, curses.A_NORMAL))
        self._screen.refresh()

    def _in_its_encoding(self, text: str) -> str:
        if not self._plain:
            return text
        return text.translate(_PLAIN).encode("ascii", "replace").decode()

    def key(self) -> str | None:
        try:
            key = self._screen.get_wch()
        except curses.error:  # none in time
            if not is_terminal(sys.stdin):
                raise _Ended(signal.SIGHUP) from None
            return None
        if key == curses.KEY_RESIZE:
            return None
        return _NAMES.get(key, key if isinstance(key, str) else "")


def _watch(il: Interlock) -> None:
    picture, view = gather(il), View()
    reporter = _Reporter(il)
    with _Terminal.open() as terminal:
        while not view.quits or reporter.owes:  # who has said yes, then quit, meant both
            terminal.show(picture, view)
            key = terminal.key()
            if key is not None:
                view = press(view, key, picture)
            if view.breaks is not None:
                reporter.break_(view.breaks)
                view = view._replace(breaks=None)
            for news in reporter.news():
                view = hear(view, news)
                picture = news if isinstance(news, Picture) else picture


def _top() -> Parser:
    return parser(
        "top",
        "watch scopes, holders and progress live; the keys are on the last line",
        "  interlock top\n  interlock top --json      what stands now, once",
    )


def _call_top(call: Call) -> int:
    if call.json:
        call.say(as_json(gather(call.client())), lambda: None)
        return 0
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise InvalidInput("top is for a terminal; interlock top --json tells once what stands.")
    _refuse_typewriter()
    try:
        _watch(call.client())
    except _Ended as ended:
        return 0 if ended.number == signal.SIGINT else 128 + ended.number
    return 0


def _refuse_typewriter() -> None:
    try:
        curses.setupterm()
        able = curses.tigetstr("cup") is not None
    except curses.error:
        able = False
    if not able:
        raise InvalidInput(f"top needs a terminal with a cursor, which TERM={os.environ.get('TERM')} is not.")


COMMANDS = {"top": (_top, _call_top)}
