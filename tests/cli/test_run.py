"""`interlock run`, as people use it: real processes, real signals, both stores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from interlock import Interlock

from ..conftest import eventually, see_renewed
from ..servers import RedisServer
from .conftest import INTERLOCK


@pytest.fixture(params=["sqlite", "redis"])
def url(request, tmp_path):
    if request.param == "redis":
        return request.getfixturevalue("redis_server").url
    return f"sqlite://{tmp_path}/interlock.db"


@pytest.fixture
def il(url):
    with Interlock(url) as client:
        yield client


@pytest.fixture(autouse=True)
def _configured(environment, url):
    environment["INTERLOCK_URL"] = url


def line(process):
    return process.stdout.readline().strip()


class TestTheCommand:
    def test_runs_while_the_scope_is_held_and_returns_its_code(self, interlock, il):
        done = interlock("run", "s", "--", INTERLOCK, "show", "s", "--json")
        assert '"held": true' in done.out
        assert not il.show("s").held
        assert interlock("run", "s", "--", "sh", "-c", "exit 7").code == 7

    def test_gets_stdin_and_its_output_is_untouched(self, interlock):
        done = interlock("run", "s", "--", "sh", "-c", "cat; echo err >&2", given="one\ntwo\n")
        assert (done.code, done.out, done.err) == (0, "one\ntwo\n", "err\n")

    def test_is_told_what_it_holds(self, start, il, url):
        process = start(
            "run", "s", "--", "sh", "-c",
            "echo $INTERLOCK_SCOPE $INTERLOCK_LOCK_ID $INTERLOCK_FENCE $INTERLOCK_URL; read wait",
        )  # fmt: skip
        words = line(process).split()
        holder = il.show("s").holders[0]
        assert words == ["s", holder.lock_id, str(holder.fence), url]
        assert holder.label == (
            "sh -c echo $INTERLOCK_SCOPE $INTERLOCK_LOCK_ID $INTERLOCK_FENCE $INTERLOCK_URL; read wait"
        )

    def test_that_a_signal_ends_is_128_and_its_number(self, interlock):
        assert interlock("run", "s", "--", "sh", "-c", "kill -9 $$").code == 128 + 9
        assert interlock("run", "s", "--", "sh", "-c", "kill -TERM $$").code == 128 + 15

    def test_that_is_not_there_or_not_executable(self, interlock, il, tmp_path):
        (tmp_path / "plain").write_text("no program")
        missing = interlock("run", "s", "--", "./nowhere")
        assert (missing.code, missing.err) == (127, "interlock: ./nowhere: No such file or directory\n")
        assert interlock("run", "s", "--", "./plain").code == 126
        assert not il.show("s").held

    def test_has_default_signals_and_none_of_our_descriptors(self, interlock):
        code = (
            "import os, signal; print(signal.getsignal(signal.SIGPIPE), sorted(os.listdir('/proc/self/fd')))"
        )
        direct = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        held = interlock("run", "s", "--", sys.executable, "-c", code)
        assert held.out == direct.stdout

    def test_may_take_options_that_look_like_ours(self, interlock):
        assert interlock("run", "s", "--", "echo", "--json", "--", "--url").out == "--json -- --url\n"


class TestTakingTurns:
    def test_the_second_waits_for_the_first(self, start, il):
        first = start("run", "s", "--", "sh", "-c", "echo in; read wait; echo out")
        assert line(first) == "in"
        second = start("run", "s", "--", "echo", "second")
        eventually(lambda: il.show("s").waiting == 1)
        first.communicate("go\n", timeout=30)
        assert second.communicate(timeout=30)[0] == "second\n"

    def test_fail_fast_says_who_holds_it_since_when(self, start, interlock):
        first = start("run", "s", "--", "sh", "-c", "echo in; read wait")
        assert line(first) == "in"
        refused = interlock("run", "s", "--fail-fast", "--", "echo", "second")
        assert (refused.code, refused.out) == (75, "")
        assert "'s' is held by sh -c echo in; read wait, process" in refused.err
        assert " since 20" in refused.err

    def test_a_wait_that_is_over_is_75(self, start, interlock, il):
        first = start("run", "s", "--", "sh", "-c", "echo in; read wait")
        assert line(first) == "in"
        late = interlock("run", "s", "--wait", "0.2", "--", "echo", "second")
        assert (late.code, late.out) == (75, "")
        assert "Waited 0.2 s for 's'" in late.err
        assert il.show("s").waiting == 0

    def test_permits_let_several_in(self, start, interlock):
        one = start("run", "s", "--permits", "2", "--", "sh", "-c", "echo in; read wait")
        assert line(one) == "in"
        assert interlock("run", "s", "--permits", "2", "--fail-fast", "--", "true").code == 0

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_ends_the_wait_and_leaves_no_place(self, start, il, number):
        with il.lock("s"):
            waiting = start("run", "s", "--", "echo", "never")
            eventually(lambda: il.show("s").waiting == 1)
            waiting.send_signal(number)
            out, err = waiting.communicate(timeout=30)
            assert (waiting.returncode, out, err) == (128 + number, "", "")
            assert il.show("s").waiting == 0


class TestSignals:
    @pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "QUIT", "USR1", "USR2"])
    def test_are_passed_on_to_the_command(self, start, il, name):
        # Not a shell: a signal that meets one while it starts a program may be lost in it.
        script = f"""if True:
            import signal, sys, time
            signal.signal(signal.SIG{name}, lambda *_: (print("got {name}"), sys.exit(3)))
            print("in", flush=True)
            while True:
                time.sleep(0.05)
        """
        process = start("run", "s", "--", sys.executable, "-c", script)
        assert line(process) == "in"
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.communicate(timeout=30)[0] == f"got {name}\n"
        assert process.returncode == 3
        assert not il.show("s").held

    def test_a_flood_of_them_does_no_harm(self, start):
        script = """if True:
            import os, signal, time
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
                signal.signal(number, lambda *_: None)
            signal.signal(signal.SIGTERM, lambda *_: os._exit(3))  # not while others come in
            print("in", flush=True)
            while True:
                time.sleep(0.05)
        """
        process = start("run", "s", "--", sys.executable, "-c", script)
        assert line(process) == "in"
        for _ in range(1000):
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT):
                process.send_signal(number)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 3

    def test_reach_what_the_command_has_started_too(self, start):
        process = start("run", "s", "--", "sh", "-c", "sleep 300 & echo $!; wait")
        child = int(line(process))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        eventually(lambda: gone(child))

    def test_sigkill_of_interlock_run_ends_the_command(self, start, il, url):
        process = start("run", "s", "--ttl", "1", "--", "sh", "-c", "echo $$; while :; do sleep 0.05; done")
        command = int(line(process))
        process.kill()
        eventually(lambda: gone(command))
        eventually(lambda: not il.show("s").held)
        if url.startswith("sqlite"):
            assert il.acquire("s", wait=0)


class TestALostLease:
    def test_ends_the_command_with_70_and_a_sentence(self, start, il):
        process = start("run", "s", "--ttl", "1", "--", "sh", "-c", "echo in; while :; do sleep 0.05; done")
        assert line(process) == "in"
        il.break_("s")
        _, err = process.communicate(timeout=30)
        assert process.returncode == 70
        assert "The lease on 's'" in err
        assert "was lost" in err
        assert err.endswith("Ending the command.\n")
        assert err.count("\n") == 1

    def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(self, start, il):
        process = start(
            "run", "s", "--ttl", "1", "--grace", "0.3", "--", "sh", "-c",
            "trap '' TERM; echo $$; while :; do sleep 0.05; done",
        )  # fmt: skip
        command = int(line(process))
        il.break_("s")
        process.communicate(timeout=30)
        assert process.returncode == 70
        eventually(lambda: gone(command))

    def test_while_we_were_stopped(self, start, il):
        process = start("run", "s", "--ttl", "0.5", "--", "sh", "-c", "echo in; while :; do sleep 0.05; done")
        assert line(process) == "in"
        process.send_signal(signal.SIGSTOP)
        taken = il.acquire("s", wait=30)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 70
        assert "was lost" in err
        taken.check()

    def test_that_the_command_did_not_live_to_see_is_told_too(self, start, il):
        process = start("run", "s", "--", "sh", "-c", "echo in; read wait")
        assert line(process) == "in"
        il.break_("s")
        _, err = process.communicate("go\n", timeout=30)
        assert process.returncode == 70
        assert "was lost" in err


class TestProgress:
    def test_is_read_from_the_output_and_shown_as_status(self, start, il):
        process = start(
            "run", "s", "--progress-from", "stdout", "--", "sh", "-c",
            "echo starting; echo '40% loading page 4 of 10'; read wait; printf '100%%\\n'",
        )  # fmt: skip
        assert line(process) == "starting"
        assert line(process) == "40% loading page 4 of 10"
        seen = eventually(lambda: (s := il.status.get("s")).output and s)
        assert (seen.output, seen.percent, seen.message) == ("loading", 40, "page 4 of 10")
        out, _ = process.communicate("go\n", timeout=30)
        assert (process.returncode, out) == (0, "100%\n")
        assert il.status.get("s").output is None

    def test_may_come_on_stderr(self, start, il):
        process = start(
            "run", "s", "--progress-from", "stderr", "--", "sh", "-c", "echo '7.5%' >&2; echo out; read wait"
        )
        assert line(process) == "out"
        seen = eventually(lambda: (s := il.status.get("s")).output and s)
        assert (seen.output, seen.percent, seen.message) == ("working", 7.5, None)
        _, err = process.communicate("go\n", timeout=30)
        assert err == "7.5%\n"

    def test_bytes_of_any_kind_pass_through(self, start):
        data = bytes(range(256)) * 4000
        process = start("run", "s", "--progress-from", "stdout", "--", "cat", text=False)
        out, _ = process.communicate(data, timeout=30)
        assert out == data

    def test_a_slow_reader_gets_all_of_it(self, start, il):
        process = start("run", "s", "--progress-from", "stdout", "--", "seq", "24000")
        eventually(lambda: not il.show("s").held)
        assert process.communicate(timeout=30)[0].splitlines() == [str(n) for n in range(1, 24001)]

    def test_so_does_one_of_what_the_command_has_left_running(self, interlock):
        code = "(sleep 0.5; echo late) & echo early"
        assert (
            interlock("run", "s", "--progress-from", "stdout", "--", "sh", "-c", code).out == "early\nlate\n"
        )

    def test_a_reader_that_leaves_ends_the_command(self, start):
        process = start("run", "s", "--progress-from", "stdout", "--", "yes")
        process.stdout.close()
        assert process.wait(30) == 128 + signal.SIGPIPE

    def test_a_full_disk_is_told(self, start):
        with open("/dev/full", "w") as full:
            process = start("run", "s", "--progress-from", "stdout", "--", "yes", stdout=full)
            _, err = process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGPIPE
        assert err == "interlock: The command's output can't be written: No space left on device.\n"


class TestSurroundings:
    @pytest.mark.parametrize("descriptor", [0, 1, 2])
    def test_a_closed_stream_is_no_matter(self, start, il, tmp_path, descriptor):
        words = ("run", "s", "--", "sh", "-c", "echo ran > ran; exit 7")
        process = start(*words, preexec_fn=lambda: os.close(descriptor))
        process.communicate(timeout=30)
        assert process.returncode == 7
        assert (tmp_path / "ran").exists()
        assert not il.show("s").held

    def test_the_locale_is_as_it_was(self, interlock, environment):
        for name in ("LANG", "LC_ALL", "LC_CTYPE"):
            environment.pop(name, None)
        assert "LC_CTYPE" not in interlock("run", "s", "--", "env").out
        environment["LC_CTYPE"] = "C.UTF-8"
        assert "LC_CTYPE=C.UTF-8" in interlock("run", "s", "--", "env").out

    def test_a_script_needs_no_first_line(self, interlock, tmp_path):
        script = tmp_path / "job"
        script.write_text("echo $1; exit 3\n")
        script.chmod(0o755)
        done = interlock("run", "s", "--", "./job", "two words")
        assert (done.code, done.out) == (3, "two words\n")

    def test_the_working_folder_may_be_gone(self, interlock, tmp_path):
        (tmp_path / "gone").mkdir()
        words = ("-c", f"cd gone; rmdir ../gone; exec {INTERLOCK} run s -- echo ran")
        assert interlock(*words, executable="/bin/sh").out == "ran\n"


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_an_outage_at_the_end_does_not_hide_the_commands_code(start):
    server = RedisServer()
    try:
        process = start("run", "s", "--url", server.url, "--", "sh", "-c", "echo in; read wait; exit 5")
        assert line(process) == "in"
        server.kill()
        _, err = process.communicate("go\n", timeout=60)
    finally:
        server.close()
    assert process.returncode == 5
    assert "The lease ends with its ttl" in err


def test_time_passes_only_for_the_lease(start, il):
    """It renews itself."""
    process = start("run", "s", "--ttl", "3", "--", "sh", "-c", "echo in; read wait")
    assert line(process) == "in"
    for _ in range(4):
        see_renewed(il, "s")
    process.communicate("go\n", timeout=30)
    assert process.returncode == 0
