"""`interlock top`: what a key does, how it looks at any width, and the real thing on a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

import pytest

from interlock import Holder, Interlock, LimitInUse, ScopeInfo, Status, StoreUnavailable, Waiter
from interlock.cli.picture import Picture, View, draw, hear, listed, press
from interlock.cli.picture import _cells as cells

from ..conftest import eventually
from ..servers import RedisServer

AT = "2026-01-01T12:00:0{}.000Z"


def info(scope, number=0, waiting=0, held=True, label="somebody"):
    holder = Holder(
        lock_id=f"id-{number}", label=label, fence=number, expires_in=90, locked_at=AT.format(number)
    )
    waiters = tuple(Waiter(lock_id=f"w-{place}", label=f"waiter {place}") for place in range(waiting))
    return ScopeInfo(
        scope=scope,
        held=held,
        count=int(held),
        holders=(holder,) if held else (),
        waiting=waiting,
        waiters=waiters,
    )


def picture(*infos, limits=(), **statuses):
    return Picture("redis://localhost:6379/0", "12:00:09", infos, statuses, limits)


def limit(scope, used=1, per=60, algorithm="gcra"):
    return LimitInUse(scope=scope, algorithm=algorithm, per=per, used=used, reset_at=time.time() + 30)


THREE = picture(info("a", 3), info("b", 1, waiting=1), info("c", 2, waiting=5))


def typed(keys, view=None, of=THREE):
    view = view or View()
    for key in keys:
        view = press(view, key, of)
    return view


def text(of=THREE, view=None, width=80, height=24):
    return ["".join(part for part, _ in line) for line in draw(of, view or View(), width, height)]


def selected(of, view):
    for line in draw(of, view, 80, 24)[:-2]:
        for part, look in line:
            if look == "selected":
                return part.split()[0]
    return None


class TestKeys:
    def test_move_the_selection(self):
        assert selected(THREE, View()) == "a"
        assert selected(THREE, typed(["down"])) == "b"
        assert selected(THREE, typed("jjjjj")) == "c"
        assert selected(THREE, typed("jjjk")) == "b"
        assert selected(THREE, typed(["end", "up"])) == "b"
        assert selected(THREE, typed(["end", "page up"])) == "a"

    def test_sort(self):
        def order(view):
            return "".join(found.scope for found in listed(THREE, view))

        assert [order(typed("s" * times)) for times in range(4)] == ["abc", "bca", "cba", "abc"]

    def test_whose_age_nobody_knows_comes_last(self):
        of = picture(info("a", held=False, waiting=1), info("b", 1))
        assert [found.scope for found in listed(of, typed("s"))] == ["b", "a"]

    def test_the_selection_stays_with_its_scope(self):
        view = typed("jj")
        assert selected(picture(info("0"), *THREE.scopes), view) == "c"
        assert selected(THREE, typed("s", view)) == "c"

    def test_the_selection_goes_to_what_stands_where_it_was(self):
        view = typed("j")
        assert selected(picture(info("a"), info("c"), info("d")), view) == "c"
        assert selected(picture(info("a")), view) == "a"
        assert selected(picture(), view) is None

    def test_filter_by_scope_and_holder(self):
        of = picture(info("excel-1", label="Nightly"), info("excel-2"), info("mail", label="nightly"))
        assert [found.scope for found in listed(of, typed("/night"))] == ["excel-1", "mail"]
        view = typed(["/", *"excel-12", "backspace", "backspace", "2", "enter"], of=of)
        assert [found.scope for found in listed(of, view)] == ["excel-2"]
        assert not view.typing
        assert text(of, view)[-2] == "Only what has 'excel-2'; Esc shows all."
        assert typed(["escape"], view).text == ""
        assert typed(["/", "x", "escape"]) == View()

    def test_are_text_while_text_is_typed(self):
        view = typed("/qbs jk")
        assert (view.text, view.quits, view.asks) == ("qbs jk", False, None)
        assert text(view=view)[-1].startswith("/qbs jk")
        assert text(view=view)[1:3] == ["", "No scope has 'qbs jk'."]

    def test_break_asks_first(self):
        asked = typed("jb")
        assert asked.asks == "b"
        assert text(view=asked)[-1] == "Break b, held by somebody? [y/n]"
        assert typed("y", asked).breaks == "b"
        for key in ("n", "escape", "enter", "q", "down"):
            answered = typed([key], asked)
            assert (answered.breaks, answered.asks, answered.quits) == (None, None, False)
            assert text(view=answered)[-2] == "Nothing was changed."

    def test_break_takes_what_was_asked_for_whatever_comes_between(self):
        asked = typed("jb")
        assert press(asked, "y", picture(info("z"))).breaks == "b"

    def test_break_is_for_what_is_held(self):
        for of in (picture(), picture(info("a", held=False, waiting=1))):
            view = typed("b", of=of)
            assert (view.asks, view.says) == (None, "There is nothing to break.")

    def test_details_tell_all_of_one(self):
        view = typed(["end", "enter"])
        said = text(view=view)
        assert said[1] == "c is held"
        assert "id-2" in "".join(said)
        assert [line.strip() for line in said if "in line" in line] == [
            f"{place + 1}. in line  waiter {place}" for place in range(5)
        ]
        assert typed("b", view).asks == "c"
        assert text(picture(), view)[1] == "c is free"
        assert text(picture(), typed("j", view, picture()))[1] == "c is free"
        assert typed(["escape"], view).details is None

    def test_details_scroll(self):
        view = typed(["end", "enter"])
        assert not any("waiter 4" in line for line in text(view=view, height=8))
        assert any("waiter 4" in line for line in text(view=typed(["end"], view), height=8))
        assert text(view=typed(["end", *["up"] * 50], view)) == text(view=view)

    def test_others_do_nothing(self):
        for key in ("", "ä", "x", "backspace"):
            assert typed([key]) == View()


class TestLook:
    @pytest.mark.parametrize("width", [1, 7, 20, 40, 71, 72, 80, 200])
    @pytest.mark.parametrize("height", [1, 2, 3, 5, 24])
    def test_nothing_is_wider_or_higher_than_the_terminal(self, width, height):
        of = picture(
            info("a-long-scope-of-which-there-are-many", 1, 3, label="x" * 300),
            info("日本語の名前はとても長いです", 2),
            *(info(f"job-{number}", 3) for number in range(30)),
            limits=(limit("日本語の名前はとても長いです", 10**9), *map(limit, "abcdefghijk")),
            **{"job-1": Status(key="job-1", output="loading", percent=50, message="m" * 300)},
        )
        for keys in ("", "/x", "/xyz", ["enter"], "b", ["j", "enter"], ["end"]):
            lines = draw(of, typed(keys, of=of), width, height)
            assert len(lines) <= height
            assert all(sum(cells(part) for part, _ in line) <= width for line in lines)

    def test_80_columns_have_all_of_it(self):
        of = picture(info("excel", waiting=2), excel=Status(key="excel", output="loading", percent=40))
        head, title, row = text(of)[:3]
        assert re.fullmatch(r"redis://localhost:6379/0 +1 held  2 waiting  12:00:09", head)
        assert len(head) == 80
        assert title.split() == ["SCOPE", "HELD", "BY", "FOR", "ENDS", "IN", "PROGRESS", "WAITING"]
        for part in ("excel", "somebody", "1 min", "██░░░░  40 % loading", "2"):
            assert part in row

    @pytest.mark.parametrize("width", [40, 71, 72, 80])
    def test_the_last_column_is_whole_however_long_the_others_are(self, width):
        long = "x" * 300
        of = picture(*(info(f"{scope}{long}", 0, 7, label=long) for scope in "ab"), limits=(limit(long),))
        selected, other = text(of, width=width)[2:4]
        assert selected.rstrip()[-1] == other[-1] == "7"
        assert text(of, width=width)[-3].endswith("s")

    def test_40_columns_have_what_matters(self):
        of = picture(info("excel", waiting=2), excel=Status(key="excel", output="loading", percent=40))
        _, title, row = text(of, width=40)[:3]
        assert title.split() == ["SCOPE", "HELD", "BY", "FOR", "DONE", "WAIT"]
        assert row.split()[0] == "excel"
        assert "40%" in row

    def test_the_selected_is_always_seen(self):
        of = picture(*(info(f"job-{number:03}") for number in range(100)))
        for steps in (0, 5, 50, 94, 99):
            assert selected(of, typed("j" * steps, of=of)) == f"job-{steps:03}"

    def test_wide_characters_line_up(self):
        of = picture(info("x", waiting=7), info("日本", waiting=7), info("e\u0301t", waiting=7))
        rows = text(of)[2:5]
        assert len({cells(row[: row.rindex("7")]) for row in rows}) == 1

    def test_what_others_wrote_does_not_steer_the_terminal(self):
        evil = "\x1b[31mred\x07\u202e"
        status = Status(key=evil, output=evil, message=evil, percent=1)
        of = picture(info(evil, waiting=1, label=evil), **{evil: status})
        for keys in ("", ["enter"], "b", ["/", *evil]):
            view = hear(typed(keys, of=of), f"{evil}: taken from {evil}.")
            for line in (*text(of, view), *text(of, hear(view, StoreUnavailable(evil)))):
                assert line.isprintable()

    @pytest.mark.parametrize("percent", ["many", float("nan"), -1, 1e300, [], True])
    def test_a_strange_percentage_is_no_harm(self, percent):
        of = picture(info("s"), s=Status(key="s", output="loading", percent=percent))
        assert "loading" in text(of)[2]
        text(of, width=40)
        text(of, typed(["enter"], of=of))

    def test_an_outage_keeps_the_picture_and_says_so(self):
        view = hear(View(), StoreUnavailable("Lost the Redis."))
        said = text(view=view)
        assert said[2].split()[0] == "a"
        assert said[-2] == "As of 12:00:09, trying again: Lost the Redis."
        assert hear(view, THREE) == View()

    def test_limits_in_use_stand_below(self):
        of = picture(info("excel"), limits=(limit("api", 3), limit("mail", 40, 0.5, "sliding-window")))
        said = [line.split() for line in text(of) if line]
        assert said[0][:1] + said[2][:1] == ["redis://localhost:6379/0", "excel"]
        assert said[3:6] == [
            ["LIMIT", "ALGORITHM", "PER", "USED", "FREE", "IN"],
            ["mail", "sliding-window", "0.5", "s", "40", "30", "s"],
            ["api", "gcra", "1", "min", "3", "30", "s"],
        ]
        assert ["mail", "0.5", "s", "40", "30", "s"] in [line.split() for line in text(of, width=40)]
        filtered = "".join(text(of, typed("/mai", of=of)))
        assert "sliding-window" in filtered
        assert "gcra" not in filtered

    def test_limits_take_no_more_than_a_third(self):
        of = picture(*map(info, "abcdefghijklmnopqrstuvwxyz"), limits=tuple(map(limit, "ABCDEFGHIJKLMN")))
        said = text(of)
        assert len(said) == 24
        assert said[-3] == "and 11 more; / finds them"
        assert sum(line[:1].islower() for line in said[2:-3]) == 14
        assert "LIMIT" not in "".join(text(of, height=10))

    def test_a_store_with_nothing_in_it(self):
        assert text(picture())[1:3] == ["", "Nothing is held or waited for."]


# ---------------------------------------------------------------------- on a terminal


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, start, *words, columns=80, rows=24, **options):
        self._master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.seen = ""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), self.slave)
        self.process = start(*words, **streams, preexec_fn=lambda: os.login_tty(self.slave), **options)

    def resize(self, columns, rows):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self._master, keys.encode())

    def expect(self, text, seconds=30):
        """Wait for a text; forgets all up to it."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come: {self.seen!r}"
            self._read(left)
        self.seen = self.seen.partition(text)[2]

    def _read(self, seconds):
        ready = select.select([self._master], [], [], seconds)[0]
        if ready:
            self.seen += os.read(self._master, 65536).decode(errors="replace")
        return bool(ready)

    def end(self):
        """Waits for it; answers its code. The terminal must be as before."""
        eventually(lambda: self._read(0) or self.process.poll() is not None, 30)
        while self.process.poll() is None or self._read(0):
            self._read(0.05)
        assert "\x1b[?1049l" in self.seen, "the screen was not given back"
        assert termios.tcgetattr(self.slave) == self.before
        return self.process.returncode

    def hang_up(self):
        os.close(self._master)
        self._master = -1

    def close(self):
        for descriptor in (self._master, self.slave):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def il(environment, tmp_path):
    environment["INTERLOCK_URL"] = f"sqlite://{tmp_path}/interlock.db"
    environment.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
    for name in ("NO_COLOR", "LINES", "COLUMNS"):
        environment.pop(name, None)
    with Interlock(environment["INTERLOCK_URL"]) as client:
        yield client


@pytest.fixture
def open_top(start):
    opened = []

    def begin(*words, **options):
        opened.append(Terminal(start, *(words or ("top",)), **options))
        return opened[-1]

    yield begin
    for terminal in opened:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()
        terminal.close()


class TestOnATerminal:
    def test_a_scope_is_watched_and_broken(self, open_top, il):
        il.acquire("deploy", label="the release")
        top = open_top()
        top.expect("1 held")
        top.expect("deploy")
        top.expect("the release")
        il.acquire("later")
        top.expect("later")
        top.type("b")
        top.expect("Break deploy, held by the release")
        top.type("y")
        top.expect("deploy: taken from the release")
        assert [found.scope for found in il.locks()] == ["later"]
        top.type("q")
        assert top.end() == 0

    def test_no_means_no(self, open_top, il):
        il.acquire("deploy")
        top = open_top()
        top.expect("deploy")
        top.type("bn")
        top.expect("Nothing was changed.")
        top.type("q")
        assert top.end() == 0
        assert il.show("deploy").held

    def test_a_break_is_done_before_it_quits(self, open_top, il):
        il.acquire("deploy")
        top = open_top()
        top.expect("deploy")
        top.type("byq")
        assert top.end() == 0
        assert not il.show("deploy").held

    def test_keys_that_are_no_characters(self, open_top, il):
        for scope in ("alpha", "beta"):
            il.acquire(scope, label=f"holder of {scope}")
        top = open_top()
        top.expect("beta")
        top.type("\x1bOB\r")  # down, Enter
        top.expect("beta is held")
        top.type("\x1b")
        top.expect("filter")
        top.type("/ä\x7falpha\r")
        top.expect("'alpha'")
        top.type("b")
        top.expect("Break alpha")
        top.type("nq")
        assert top.end() == 0

    def test_it_fits_whatever_the_terminal_becomes(self, open_top, il):
        il.acquire("deploy")
        top = open_top()
        top.expect("PROGRESS")
        top.resize(40, 10)
        top.expect("DONE")
        top.resize(120, 30)
        top.expect("PROGRESS")
        top.resize(1, 1)
        time.sleep(0.5)
        top.resize(80, 24)
        top.expect("PROGRESS")
        top.type("q")
        assert top.end() == 0

    @pytest.mark.parametrize(("no_color", "colours"), [("", True), ("1", False)])
    def test_no_color(self, open_top, il, environment, no_color, colours):
        il.acquire("deploy").progress("loading", percent=40)
        il.acquire("second").progress("loading", percent=40)
        environment["NO_COLOR"] = no_color
        top = open_top()
        top.expect("second")
        top.type("/s")
        time.sleep(1.5)
        top.type("\x1b")
        time.sleep(0.3)
        top.type("q")
        assert top.end() == 0
        assert bool(re.search(r"\x1b\[(\d+;)*3[0-7]m", top.seen)) is colours

    @pytest.mark.parametrize(
        ("number", "code"),
        [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)],
    )
    def test_a_signal_ends_it_and_restores_the_terminal(self, open_top, il, number, code):
        il.acquire("deploy")
        top = open_top()
        top.expect("deploy")
        top.process.send_signal(number)
        assert top.end() == code

    def test_ctrl_c_is_a_key_like_q(self, open_top, il):
        top = open_top()
        top.expect("Nothing is held")
        top.type("\x03\x03")
        assert top.end() == 0

    @pytest.mark.parametrize("place", ["gather", "draw"])
    def test_an_exception_is_shown_on_a_restored_terminal(self, open_top, il, place):
        code = f"""
            import interlock.cli, interlock.cli.top as top, sys
            honest, calls = top.{place}, []
            def fails(*words):
                calls.append(words)
                if len(calls) > 2:
                    raise ZeroDivisionError("a bug")
                return honest(*words)
            top.{place} = fails
            sys.exit(interlock.cli.main(["top"]))
        """
        top = open_top("-c", "\n".join(line[12:] for line in code.splitlines()), executable=sys.executable)
        assert top.end() == 1
        assert "ZeroDivisionError: a bug" in top.seen.partition("\x1b[?1049l")[2]

    def test_a_terminal_that_is_gone_ends_it(self, open_top, il):
        top = open_top()
        top.expect("Nothing is held")
        top.hang_up()
        assert top.process.wait(30) in (129, -signal.SIGHUP)

    def test_a_store_that_is_away_is_waited_for(self, open_top, il, environment):
        server = RedisServer()
        try:
            environment["INTERLOCK_URL"] = server.url
            with Interlock(server.url) as client:
                client.acquire("deploy")
            top = open_top()
            top.expect("deploy")
            server.kill()
            top.expect("trying again")
            top.type("b")
            top.expect("Break deploy")
            top.type("y")
            top.expect("deploy: ")
            server.start()
            top.expect("Nothing is held")
            server.kill()
            top.expect("trying again")
            top.type("q")
            assert top.end() == 0
        finally:
            server.close()

    def test_a_store_that_does_not_answer_delays_no_key(self, open_top, il, environment):
        server = RedisServer()
        try:
            environment["INTERLOCK_URL"] = server.url
            top = open_top()
            top.expect("Nothing is held")
            server.pause()
            time.sleep(1.5)
            began = time.monotonic()
            top.type("q")
            assert top.end() == 0
            assert time.monotonic() - began < 2
        finally:
            server.close()

    @pytest.mark.parametrize("terminal", ["dumb", "no-such-terminal", ""])
    def test_a_terminal_that_can_do_nothing_is_one_sentence(self, open_top, il, environment, terminal):
        environment["TERM"] = terminal
        top = open_top()
        top.expect(f"interlock: top needs a terminal with a cursor, which TERM={terminal} is not.")
        assert top.process.wait(30) == 64

    def test_a_plain_locale_has_plain_bars(self, open_top, il, environment):
        environment["LC_ALL"] = "C"
        il.acquire("deploy").progress("loading", percent=40)
        top = open_top()
        top.expect("##----  40 % l")
        top.type("q")
        assert top.end() == 0


class TestWithoutATerminal:
    def test_it_is_one_sentence_and_64(self, interlock, il):
        done = interlock("top")
        assert (done.code, done.out) == (64, "")
        assert done.err == "interlock: top is for a terminal; interlock top --json tells once what stands.\n"

    def test_json_is_one_picture(self, interlock, il):
        lease = il.acquire("deploy", label="the release")
        lease.progress("loading", percent=40)
        il.limit("api", limit=5, per=3600)
        said = json.loads(interlock("top", "--json").out)
        assert (said["held"], said["waiting"], said["url"]) == (1, 0, il.url)
        (found,) = said["scopes"]
        assert (found["scope"], found["holders"][0]["label"]) == ("deploy", "the release")
        assert found["status"]["percent"] == 40
        assert [(found["scope"], found["used"]) for found in said["limits"]] == [("api", 1)]

    def test_a_store_that_is_away_is_69(self, interlock, environment, open_top, il):
        environment["INTERLOCK_URL"] = "redis://127.0.0.1:1"
        assert interlock("top", "--json").code == 69
        top = open_top()
        assert top.process.wait(30) == 69
