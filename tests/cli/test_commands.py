"""Every other command: what it prints, its JSON, its exit codes, and how it refuses."""

from __future__ import annotations

import json
import select
import signal
import subprocess

import pytest

from interlock import Interlock
from interlock.cli import COMMANDS
from interlock.cli.progress import read_line

from ..conftest import eventually
from .conftest import INTERLOCK


@pytest.fixture
def il(environment, tmp_path):
    environment["INTERLOCK_URL"] = f"sqlite://{tmp_path}/interlock.db"
    with Interlock(environment["INTERLOCK_URL"]) as client:
        yield client


class TestLeases:
    def test_span_several_commands(self, interlock, il):
        taken = interlock("acquire", "deploy", "--ttl", "10m")
        assert taken.code == 0
        lock_id = taken.out.strip()
        assert il.show("deploy").holders[0].lock_id == lock_id
        assert interlock("renew", "deploy", lock_id, "--ttl", "2h") == (0, "", "")
        assert 7190 < il.show("deploy").holders[0].expires_in <= 7200
        assert interlock("release", "deploy", lock_id) == (0, "", "")
        assert interlock("release", "deploy", lock_id).code == 0
        assert not il.show("deploy").held

    def test_as_json_have_the_contracts_fields(self, interlock, il):
        said = interlock("acquire", "deploy", "--json", "--execution-id", "77", "--workflow-name", "Import")
        lease = json.loads(said.out)
        assert {
            "acquired", "count", "scope", "lock_id", "key", "meta_key",
            "workflow_id", "workflow_name", "execution_id", "locked_at",
        } <= set(lease)  # fmt: skip
        assert (lease["acquired"], lease["execution_id"], lease["key"]) == (True, "77", "n8n-lock-deploy")
        released = json.loads(interlock("release", "deploy", lease["lock_id"], "--json").out)
        assert released == {
            "released": True, "idempotent": False, "scope": "deploy", "lock_id": lease["lock_id"],
        }  # fmt: skip

    def test_that_others_hold(self, interlock, il):
        il.acquire("deploy", label="the release")
        refused = interlock("acquire", "deploy", "--fail-fast", "--json")
        assert refused.code == 75
        said = json.loads(refused.out)
        assert (said["acquired"], said["count"], said["holder"]["label"]) == (False, 1, "the release")
        assert "held by the release" in refused.err
        for words in (("release", "deploy", "mine"), ("renew", "deploy", "mine")):
            refused = interlock(*words)
            assert refused.code == 70
            assert refused.err.startswith("interlock: LOGIC ERROR:")

    def test_are_broken_when_that_is_meant(self, interlock, il):
        il.acquire("deploy", label="the release")
        careful = interlock("break", "deploy")
        assert careful.code == 64
        assert "--yes" in careful.err
        assert il.show("deploy").held
        done = interlock("break", "deploy", "--yes")
        assert done.out.startswith("Taken from the release, process")
        assert interlock("break", "deploy", "--yes").out == "Nobody held deploy.\n"
        assert json.loads(interlock("break", "deploy", "--yes", "--json").out)["broken"] is False

    def test_are_cleaned_up_by_execution(self, interlock, il):
        il.acquire("a", execution_id="77")
        assert json.loads(interlock("cleanup", "77", "--json").out) == {
            "cleaned": True, "cleaned_count": 1, "scopes": ["a"], "reason": None,
        }  # fmt: skip
        assert interlock("cleanup", "77").out == "Execution 77 is on no list, and no scopes were named.\n"
        assert interlock("cleanup", "77", "--scope", "a", "--scope", "b").out == "It held nothing.\n"


class TestLooking:
    def test_ls_lists_what_is_held(self, interlock, il):
        assert interlock("ls") == (0, "", "")
        assert interlock("ls", "--json").out == "[]\n"
        il.acquire("excel-42", label="nightly", ttl=600)
        il.acquire("vendor", permits=3)
        il.acquire("vendor", permits=3)
        head, excel, vendor = interlock("ls").out.splitlines()
        assert head.split() == ["SCOPE", "HELD", "BY", "FOR", "ENDS", "IN", "WAITING"]
        assert excel.startswith("excel-42  nightly, process")
        assert "and 1 more" in vendor
        assert [info["scope"] for info in json.loads(interlock("ls", "--json").out)] == ["excel-42", "vendor"]

    def test_show_tells_all_of_one(self, interlock, il):
        assert interlock("show", "s").out == "s is free\n"
        lease = il.acquire("s", label="nightly")
        said = interlock("show", "s").out
        assert said.startswith("s is held\n  held by   nightly, process")
        assert str(lease.fence) in said
        assert json.loads(interlock("show", "s", "--json").out)["holders"][0]["fence"] == lease.fence

    def test_what_others_wrote_does_not_steer_the_terminal(self, interlock, il):
        il.status.set("k", "\x1b[31mred\x07", message="\x1b]0;title\x07")
        assert "\x1b" not in interlock("status", "get", "k").out

    def test_events_are_told_until_it_is_stopped(self, start, il):
        process = start("events", "--json")

        def told():
            il.acquire("x").release()
            return select.select([process.stdout], [], [], 0.2)[0]

        eventually(told)
        assert json.loads(process.stdout.readline())["event"] in ("acquired", "released")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (130, "")

    def test_a_reader_that_has_enough_is_no_error(self, environment, il):
        for number in range(50):
            il.acquire(f"scope-{number}")
        done = subprocess.run(
            ["sh", "-c", f"{INTERLOCK} ls | head -1"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""


class TestLimitsAndOnce:
    def test_a_limit_is_an_exit_code(self, interlock, il):
        assert interlock("limit", "api", "--limit", "1", "--per", "1h") == (0, "", "")
        denied = interlock("limit", "api", "--limit", "1", "--per", "1h")
        assert denied.code == 75
        assert denied.err.startswith("interlock: The limit of 1 on 'api' is used up; try again in ")
        said = interlock("limit", "api", "--limit", "1", "--per", "1h", "--json")
        assert said.code == 75
        assert json.loads(said.out)["allowed"] is False
        assert interlock("limit", "api", "--limit", "1", "--per", "1h", "--peek").code == 75
        assert interlock("limit", "api", "--per", "1h", "--reset").code == 0
        waited = interlock("limit", "api", "--limit", "9", "--per", "1h", "--wait", "5", "--json")
        assert json.loads(waited.out)["count"] == 1

    def test_once_is_for_the_first(self, interlock, il):
        assert interlock("once", "callback", "--per", "1h") == (0, "", "")
        assert interlock("once", "callback", "--per", "1h").code == 75
        assert json.loads(interlock("once", "callback", "--json").out) == {"first": False, "key": "callback"}


class TestStatus:
    def test_is_set_read_and_unset(self, interlock, il):
        assert interlock("status", "get", "import") == (0, "", "")
        words = ("status", "set", "import", "loading", "--percent", "40", "--message", "page 4")
        assert interlock(*words) == (0, "", "")
        assert interlock("status", "get", "import").out == "loading, 40 %: page 4\n"
        assert json.loads(interlock("status", "get", "import", "--json").out)["output"] == "loading"
        assert json.loads(interlock("status", "unset", "import", "--json").out) == {
            "ok": True,
            "key": "import",
        }
        assert json.loads(interlock("status", "get", "import", "--json").out)["output"] is None

    def test_of_a_lease_takes_its_lock_id(self, interlock, il):
        lease = il.acquire("s")
        lease.progress("working")
        assert interlock("status", "set", "s", "mine").code == 70
        assert interlock("status", "set", "s", "ours", "--lock-id", lease.lock_id).code == 0
        assert il.status.get("s").output == "ours"

    def test_is_watched(self, start, il):
        process = start("status", "watch", "import")
        assert process.stdout.readline() == "-\n"
        il.status.set("import", "loading", percent=40)
        assert process.stdout.readline() == "loading, 40 %\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


class TestBadInput:
    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("nonsense",), "There is no command 'nonsense'; see interlock --help."),
            (
                ("run", "s"),
                "There is no command: write it behind two dashes, as in interlock run s -- ./job.sh.",
            ),
            (("run",), "The following arguments are required: SCOPE (a command stands behind two dashes"),
            (
                ("run", "s", "./job.sh"),
                "Unrecognized arguments: ./job.sh (a command stands behind two dashes",
            ),
            (("acquire", "s", "--ttl", "soon"), "'soon' is no time: write seconds, or 30s, 5m, 2h, 1d"),
            (("acquire", "s", "--ttl", "0"), "ttl must be from 0.05 to"),
            (("acquire", "s", "--wait", "5", "--fail-fast"), "not allowed with argument"),
            (("acquire", "s", "--nonsense"), "Unrecognized arguments: --nonsense"),
            (("acquire", "a\nb"), "scope must not contain control characters"),
            (("limit", "s", "--per", "60"), "--limit is missing"),
            (("limit", "s", "--per", "60", "--limit", "0"), "limit must be a whole number from 1"),
            (("limit", "s", "--per", "60", "--limit", "1", "--algorithm", "x"), "algorithm must be one of"),
            (("status", "set", "k"), "VALUE is missing"),
            (("status", "frob", "k"), "invalid choice: 'frob'"),
            (("status", "set", "k", "v", "--percent", "200"), "percent must be a number from 0 to 100"),
        ],
    )
    def test_is_one_sentence_and_64(self, interlock, il, words, says):
        done = interlock(*words)
        assert done.code == 64
        assert done.out == ""
        assert done.err.startswith("interlock: ")
        assert says in done.err
        assert done.err.count("\n") == 1
        assert il.locks() == []

    def test_a_store_that_is_away_is_69(self, interlock):
        for words in (("ls",), ("run", "s", "--", "true"), ("status", "get", "k")):
            done = interlock("--url=redis://127.0.0.1:1", *words)
            assert done.code == 69
            assert done.err.count("\n") == 1

    def test_debug_shows_where_it_comes_from(self, interlock, il):
        assert "Traceback" in interlock("acquire", "s", "--ttl", "0", "--debug").err

    def test_what_cannot_be_printed_is_told_and_leaves_nothing_behind(self, start, il):
        for words in (("acquire", "s"), ("ls", "--json"), ("doctor",), ("--help",)):
            with open("/dev/full", "w") as full:
                process = start(*words, stdout=full)
                _, err = process.communicate(timeout=30)
            assert process.returncode == 74
            assert err == "interlock: The system refuses: No space left on device.\n"
        assert not il.show("s").held


def test_every_command_helps_with_examples(interlock):
    listed = interlock("--help").out
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name:<12}{summary}" in listed
        said = interlock(name, "--help")
        assert said.code == 0
        assert "examples:\n  " in said.out
        assert "--json" in said.out


def test_options_may_stand_before_the_command(interlock, il, tmp_path):
    other = f"sqlite://{tmp_path}/other.db"
    with Interlock(other) as client:
        client.acquire("there")
    assert json.loads(interlock("--url", other, "--json", "ls").out)[0]["scope"] == "there"
    assert interlock("--version").out == interlock("version").out


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (b"40% loading page 4", ("loading", 40, "page 4")),
        (b"  7.5 %  loading ", ("loading", 7.5, None)),
        (b"100%", ("working", 100, None)),
        (b"40 percent", None),
        (b"101% too far", None),
        (b"at 40% of it", None),
        (b"", None),
    ],
)
def test_progress_is_read_from_lines(line, meant):
    assert read_line(line) == meant


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(interlock, shell):
    script = interlock("completion", shell).out
    for name in COMMANDS:
        assert name in script
    assert "fail-fast" in script


def test_bash_completes(interlock):
    script = interlock("completion", "bash").out
    asked = script + (
        "COMP_WORDS=(interlock acquire s --fa); COMP_CWORD=3; _interlock; echo ${COMPREPLY[@]}\n"
        "COMP_WORDS=(interlock cl); COMP_CWORD=1; _interlock; echo ${COMPREPLY[@]}\n"
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--fail-fast", "cleanup"]
