"""A command in a process group of its own: started, stopped, continued and ended as if it stood alone."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

FORWARDED = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTSTP")
OURS = ("SIGCONT", "SIGTTOU", "SIGCHLD")
NOT_EXECUTABLE, NOT_FOUND = 126, 127
_PR_SET_PDEATHSIG = 1


class Pipe(NamedTuple):
    """What becomes the command's stdout or stderr."""

    end: int
    becomes: int


class Process:
    """Runs once. `run` answers its exit code as a shell would, 128 + n when a signal ended it."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._command, self._environment = command, environment
        self._terminal = _terminal()
        self._alone = self._terminal is not None and _alone()
        self._pid = 0
        self._ended = False
        self._stopping = False  # has been told to stop, and we have not stopped yet
        self._resumed = False  # and to go on, before we had stopped
        self._lock = threading.RLock()  # one signal's handler may interrupt another's
        self._started = threading.Event()

    def run(self, pipe: Pipe | None = None) -> int:
        before = self._take_signals()
        try:
            with _bell() as bell:
                try:
                    code = self._start(pipe)
                finally:
                    self._started.set()
                return self._wait(bell) if code is None else code
        finally:
            self._take_terminal_back()
            for number, handler in before.items():
                signal.signal(number, handler)

    # ------------------------------------------------------------------ starting

    def _start(self, pipe: Pipe | None) -> int | None:
        """None when it runs, else the exit code that says why it does not."""
        reader, writer = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        # Else one that comes before the child has become the command would be lost.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _numbers(FORWARDED))
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._become(pipe, parent, mask)
            except OSError as error:
                os.write(writer, str(error.errno).encode())
            finally:
                os._exit(NOT_FOUND)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(writer)
        with contextlib.suppress(OSError):  # it may have done so itself, and even be gone
            os.setpgid(self._pid, self._pid)
        with open(reader, "rb") as report:
            said = report.read()
        if not said:
            return None
        os.waitpid(self._pid, 0)
        self._ended = True
        number = int(said)
        print(f"interlock: {self._command[0] or repr('')}: {os.strerror(number)}", file=sys.stderr)
        return NOT_FOUND if number == errno.ENOENT else NOT_EXECUTABLE

    def _become(self, pipe: Pipe | None, parent: int, mask: set[Any]) -> None:
        """In the child: the command."""
        os.setpgid(0, 0)
        if self._terminal is not None and self._alone:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            os.tcsetpgrp(self._terminal, os.getpid())
        for number in (*_numbers(FORWARDED), *_numbers(OURS), signal.SIGPIPE, signal.SIGXFSZ):
            if signal.getsignal(number) is not signal.SIG_IGN or number not in _numbers(FORWARDED):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if sys.platform == "linux":
            import ctypes  # noqa: PLC0415 - slow to import, and here the parent need not wait for it

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(128 + signal.SIGKILL)
        if pipe is not None:
            os.dup2(pipe.end, pipe.becomes)
        try:
            os.execvpe(self._command[0], list(self._command), self._environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            os.execvpe("sh", ["sh", *self._command], self._environment)  # a script without #!

    @property
    def ended(self) -> bool:
        return self._ended

    # ------------------------------------------------------------------ while it runs

    def _take_signals(self) -> dict[int, Any]:
        before: dict[int, Any] = {}
        for number in _numbers(FORWARDED):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup: the command ignores it too
                before[number] = signal.signal(number, self._forward)
        before[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._continued)
        before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        return before

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._stopping, self._resumed = True, False
        self.send(number)

    def _continued(self, number: int, frame: FrameType | None) -> None:
        """By `fg` or `bg` in the shell."""
        self._resumed, self._stopping = self._stopping, False
        if self._alone:
            self._give_terminal()
        self.send(number)

    def send(self, number: int) -> None:
        """To the command and all that it has started."""
        with self._lock:
            if self._pid and not self._ended:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, number)

    def end(self, grace: float) -> None:
        """Ask it to end, and after a while see that it does."""
        self._started.wait()
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # if it is stopped it could not
        until = time.monotonic() + grace
        while time.monotonic() < until and not self._ended:
            time.sleep(0.02)
        self.send(signal.SIGKILL)

    def _wait(self, bell: int) -> int:
        while True:
            found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT | os.WNOHANG)
            if found is None:
                os.read(bell, 512)
            elif found.si_code in (os.CLD_STOPPED, os.CLD_TRAPPED):
                os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WNOHANG)
                wants_terminal = found.si_status in (signal.SIGTTIN, signal.SIGTTOU)
                if wants_terminal and not self._stopping and self._give_terminal():
                    self.send(signal.SIGCONT)
                else:
                    self._stop_too(found.si_status)
            else:
                with self._lock:  # from here on its pid may be somebody else's
                    self._ended = True
                    _, status = os.waitpid(self._pid, 0)
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code

    # ------------------------------------------------------------------ the terminal

    def _stop_too(self, number: int) -> None:
        """So that the shell says it is stopped, and gets its terminal back."""
        if self._terminal is None and number == signal.SIGSTOP:
            return  # somebody has stopped the command alone, and will continue it
        if self._resumed:
            self._resumed = False
            self.send(signal.SIGCONT)
            return
        self._stopping = False
        if self._take_terminal_back() and not self._alone:
            os.killpg(os.getpgrp(), signal.SIGSTOP)  # the key has reached the command only
        else:  # not os.kill: that may return before all of us has stopped
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def _give_terminal(self) -> bool:
        """If it is ours to give."""
        terminal = _terminal()
        if terminal is None or not self._pid:
            return False
        self._terminal = terminal
        try:
            os.tcsetpgrp(terminal, self._pid)
        except OSError:
            return False
        return True

    def _take_terminal_back(self) -> bool:
        """If it is the command's."""
        if self._terminal is None or not self._pid:
            return False
        try:
            if os.tcgetpgrp(self._terminal) != self._pid:
                return False
            os.tcsetpgrp(self._terminal, os.getpgrp())
        except OSError:
            return False
        return True


def _numbers(names: Sequence[str]) -> list[int]:
    return [int(getattr(signal, name)) for name in names]


@contextlib.contextmanager
def _bell() -> Iterator[int]:
    """A pipe that a signal writes to: one that reaches another thread would not interrupt what we wait in."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def _alone() -> bool:
    """Whether nobody shares our process group, and with it the terminal, as in a pipeline or a script.

    The command of whoever is alone gets the terminal at once, as from a shell; else when it asks for it.
    """
    group, own = os.getpgrp(), os.getpid()
    if group != own:
        return False
    try:
        others = [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != own]
    except OSError:  # no such thing here
        return True
    for pid in others:
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group:
                return False
    return True


def _terminal() -> int | None:
    """A descriptor of the terminal, if we are in its foreground."""
    for descriptor in (0, 2, 1):
        try:
            if os.tcgetpgrp(descriptor) == os.getpgrp():
                return descriptor
        except OSError:
            continue
    return None
