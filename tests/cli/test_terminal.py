"""`interlock run` on a real terminal, under a real shell with job control."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time

import pytest

from interlock import Interlock

from ..conftest import eventually
from .conftest import INTERLOCK

PROMPT = "what next? "


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, environment, columns=100):
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            path = f"{os.path.dirname(INTERLOCK)}:{os.environ['PATH']}"
            os.environ.update(environment, PS1=PROMPT, PATH=path)
            os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self._seen = ""
        self.type(f"stty cols {columns} rows 24 -echo; unset HISTFILE; echo rea''dy\n")
        self.expect("ready")

    def type(self, text):
        os.write(self._terminal, text.encode())

    def expect(self, text, seconds=20):
        """Wait for a text; forgets all up to it, and answers that."""
        deadline = time.monotonic() + seconds
        while text not in self._seen:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come: {self._seen!r}"
            if select.select([self._terminal], [], [], left)[0]:
                self._seen += os.read(self._terminal, 4096).decode(errors="replace")
        before, _, self._seen = self._seen.partition(text)
        return before

    def expect_code(self, code):
        """Not before the shell asks: the command that is about to end may read what is typed earlier."""
        self.expect(PROMPT)
        self.type("echo code=$?\n")
        self.expect(f"code={code}")

    def stop(self):
        """Ctrl-Z."""
        self.type("\x1a")
        self.expect("Stopped")
        self.expect(PROMPT)

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


@pytest.fixture
def il(environment, tmp_path):
    environment["INTERLOCK_URL"] = f"sqlite://{tmp_path}/interlock.db"
    with Interlock(environment["INTERLOCK_URL"]) as client:
        yield client


@pytest.fixture
def shell(il, environment):
    opened = Shell(environment)
    yield opened
    opened.close()


def test_the_command_reads_from_the_terminal(shell):
    shell.type("interlock run s -- sh -c 'test -t 0 && test -t 1 && echo asks; read x; echo got:$x'\n")
    shell.expect("asks")
    shell.type("hello\n")
    shell.expect("got:hello")
    shell.expect_code(0)


def test_ctrl_c_ends_the_command(shell, il):
    # Not sh and sleep: a signal that meets a shell while it starts a program may be lost in it.
    code = "import time; print('i' 'n', flush=True); time.sleep(300)"
    shell.type(f'interlock run s -- {sys.executable} -c "{code}"\n')
    shell.expect("in\r\n")
    shell.type("\x03")
    shell.expect_code(130)
    assert not il.show("s").held


READS = "print('i' 'n', flush=True)\nwhile (line := input()) != 'end': print('got', line, flush=True)"
"""Not sh, here and below: one that is stopped while it starts a program may hang by itself."""


def test_ctrl_z_stops_it_and_fg_goes_on(shell, il):
    shell.type(f'interlock run s --ttl 60 -- {sys.executable} -c "{READS}"\n')
    shell.expect("in\r\n")
    for _ in range(3):
        shell.stop()
        assert il.show("s").held
        shell.type("echo shell''lives\n")
        shell.expect("shelllives")
        shell.expect(PROMPT)
        shell.type("fg\n")
        shell.expect("interlock run")
        shell.type("hello\n")
        shell.expect("got hello")
    shell.type("end\n")
    shell.expect_code(0)
    assert not il.show("s").held


def test_bg_goes_on_in_the_background(shell, il):
    code = "import time; print('i' 'n', flush=True); time.sleep(0.5); print('do' 'ne')"
    shell.type(f'interlock run s --ttl 60 -- {sys.executable} -c "{code}"\n')
    shell.expect("in\r\n")
    shell.stop()
    shell.type("bg\n")
    shell.expect("done")
    eventually(lambda: not il.show("s").held)


def test_stopped_from_afar_and_continued(shell, il):
    shell.type(f'interlock run s --ttl 60 -- {sys.executable} -c "{READS}"\n')
    shell.expect("in\r\n")
    pid = il.show("s").holders[0].pid
    os.kill(pid, signal.SIGTSTP)
    shell.expect("Stopped")
    shell.expect(PROMPT)
    shell.type("fg\n")
    shell.expect("interlock run")
    shell.type("hello\nend\n")
    shell.expect("got hello")
    shell.expect_code(0)


def test_what_was_lost_while_it_was_stopped_is_ended(shell, il):
    shell.type(f'interlock run s --ttl 1 -- {sys.executable} -c "{READS}"\n')
    shell.expect("in\r\n")
    shell.stop()
    with il.lock("s", wait=20):
        shell.type("fg\n")
        shell.expect("was lost")
        shell.expect_code(70)


def test_in_the_background_from_the_start(shell, il):
    shell.type("interlock run s -- sh -c 'echo i''n; sleep 0.5' & wait; echo code=$?\n")
    shell.expect("in")
    shell.expect("code=0")


def test_in_a_pipeline_that_is_stopped(shell, il, tmp_path):
    shell.type(f'interlock run s --ttl 60 -- {sys.executable} -c "{READS}" | tee {tmp_path}/log\n')
    shell.expect("in\r\n")
    shell.type("hello\n")
    shell.expect("got hello")  # it was given the terminal when it asked for it
    for _ in range(2):
        shell.stop()
        shell.type("fg\n")
        shell.expect("interlock run")
        shell.type("again\n")
        shell.expect("got again")
    shell.type("end\n")
    shell.expect_code(0)


def test_whoever_else_is_in_the_pipeline_keeps_the_terminal(shell):
    reads_terminal = "import sys; sys.stdin.read(); print(open('/dev/tty').readline())"
    shell.type(f'interlock run s -- echo in | {sys.executable} -c "{reads_terminal}"\n')
    shell.type("hello\n")
    shell.expect("hello")
    shell.expect_code(0)


def test_in_a_script(shell, il, tmp_path):
    (tmp_path / "script").write_text(f'interlock run s --ttl 60 -- {sys.executable} -c "{READS}"\n')
    shell.type(f"sh {tmp_path}/script\n")
    shell.expect("in\r\n")
    shell.stop()
    shell.type("fg\n")
    shell.expect("script")
    shell.type("hello\nend\n")
    shell.expect("got hello")
    shell.expect_code(0)


def test_in_a_pipeline(shell):
    shell.type("interlock run s -- echo one two | tr ' ' '\\n' | tail -1 | sed s/^/last:/\n")
    shell.expect("last:two")


def test_whoever_waits_sees_for_whom_and_where_in_line(shell, il):
    with il.lock("s", label="the backup"):
        shell.type("interlock run s -- echo my''turn\n")
        line = shell.expect("you are number 1 in line")
        assert "waiting for s: held by the backup, process" in line
    shell.expect("myturn")
