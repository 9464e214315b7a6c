"""Where settings come from, and `interlock doctor`, which tells."""

from __future__ import annotations

import json

import pytest

from ..servers import RedisServer


@pytest.fixture
def files(tmp_path, environment):
    """interlock.toml in a folder above, and in the user's configuration."""
    environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    (tmp_path / "config" / "interlock").mkdir(parents=True)
    below = tmp_path / "project" / "deep" / "down"
    below.mkdir(parents=True)
    folders = (tmp_path / "project", tmp_path / "config" / "interlock")
    return (*(folder / "interlock.toml" for folder in folders), below)


def found(interlock, name, below, *words):
    said = interlock("doctor", "--json", *words, cwd=below)
    return {finding["what"]: finding["says"] for finding in json.loads(said.out)}.get(name)


def test_a_flag_beats_the_environment_beats_the_nearest_file(interlock, files, environment, tmp_path):
    project, user, below = files
    urls = {name: f"sqlite://{tmp_path}/{name}.db" for name in ("flag", "variable", "project", "user")}
    user.write_text(f'url = "{urls["user"]}"\n')
    assert found(interlock, "url", below) == f"{urls['user']}, from {user}"
    project.write_text(f'url = "{urls["project"]}"\n')
    assert found(interlock, "url", below) == f"{urls['project']}, from {project}"
    environment["INTERLOCK_URL"] = urls["variable"]
    assert found(interlock, "url", below) == f"{urls['variable']}, from INTERLOCK_URL"
    assert found(interlock, "url", below, "--url", urls["flag"]) == f"{urls['flag']}, from --url"


def test_lease_options_come_from_there_too(interlock, files, environment):
    project, _, below = files
    project.write_text('ttl = "10m"\nwait = 0\nlabel = "cron"\n')
    lease = json.loads(interlock("acquire", "s", "--json", cwd=below).out)
    assert (lease["ttl"], lease["label"]) == (600, "cron")
    assert interlock("acquire", "s", cwd=below).code == 75, "wait = 0 is fail fast"
    environment["INTERLOCK_LABEL"] = "ci"
    assert json.loads(interlock("acquire", "t", "--json", cwd=below).out)["label"] == "ci"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("utl = 'x'", "'utl' is no setting; there are url, "),
        ("url = 7", "must be text in quotes"),
        ("ttl = 'soon'", "'soon' is no time"),
        ("ttl = -4", "'-4' is no time"),
        ("wait = inf", "'inf' is no time"),
        ("[interlock]", "'interlock' is no setting"),
        ("ttl = true", "must be a number of seconds, not True"),
        ("url = ", "can't be read: "),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(interlock, files, text, says):
    project, _, below = files
    project.write_text(text)
    done = interlock("acquire", "s", cwd=below)
    assert done.code == 64
    assert says in done.err
    assert str(project) in done.err
    assert done.err.count("\n") == 1


def test_doctor_reports_a_wrong_file_and_others_do_without(interlock, files):
    project, _, below = files
    project.write_text("ttl = -4")
    said = interlock("doctor", cwd=below)
    assert said.code == 69
    assert "failed   ttl" in said.out
    project.write_text("ttl = ")
    assert "can't be read: " in interlock("doctor", cwd=below).out
    assert interlock("version", cwd=below).code == 0
    assert interlock("completion", "bash", cwd=below).code == 0


@pytest.mark.parametrize(
    "url",
    [
        "u:SECRETPW@127.0.0.1:6379",
        "redis:/u:SECRETPW@h",
        "redis://u:SECRET/PW@h",
        "redis://u:SECRET#PW@h",
        "redis://u:SECRET?PW@h",
        "redis://u:x@SECRET@h:1/0",
        "sqlite://u:SECRETPW@/x",
    ],
)
def test_a_password_in_a_wrong_url_is_not_printed(interlock, url, files):
    project, _, below = files
    for words in (("ls",), ("ls", "--debug"), ("doctor",)):
        said = interlock(*words, "--url", url, cwd=below)
        assert said.code == (1 if "--debug" in words else 69)
        assert "SECRET" not in said.out + said.err
    project.write_text(f'url = ["{url}"]\n')
    assert "SECRET" not in interlock("ls", cwd=below).err


def test_tables_are_for_others(interlock, files):
    project, _, below = files
    project.write_text("[serve]\nport = 8080\n[[alert]]\nurl = 'x'\n")
    assert interlock("ls", cwd=below).code == 0


def test_doctor_says_that_all_is_well(interlock, tmp_path):
    said = interlock("doctor")
    assert said.code == 0
    assert "locks          work" in said.out
    assert "interlock.db" in said.out
    assert interlock("ls", "--json").out == "[]\n", "it leaves nothing behind"


def test_doctor_knows_a_redis(interlock):
    server = RedisServer(maxmemory="100mb", **{"maxmemory-policy": "allkeys-lru", "requirepass": "secret"})
    try:
        url = f"redis://:secret@127.0.0.1:{server.port}/0"
        with server.client() as admin:
            admin.incr("n8n-lock-orphan")
            said = interlock("doctor", "--url", url)
            assert said.code == 0
            assert "secret" not in said.out
            assert f"redis {server.version.partition('-')[2]}, master" in said.out
            assert "warning  eviction       allkeys-lru: an evicted lock is a lost lock" in said.out
            assert "warning  persistence" in said.out
            assert "warning  orphans        orphan: a counter without an owner" in said.out
            kept = [key for key in admin.keys("*") if not 0 < admin.ttl(key) <= 3600]
            assert kept == ["n8n-lock-orphan"], "what it leaves behind goes away by itself"
    finally:
        server.close()


def test_doctor_says_what_does_not_work(interlock):
    said = interlock("doctor", "--url", "redis://user:secret@127.0.0.1:1/0")
    assert said.code == 69
    assert "failed   store          Can't reach the Redis at redis://user:***@127.0.0.1:1/0" in said.out
    assert "secret" not in said.out + said.err
