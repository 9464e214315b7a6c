from __future__ import annotations

import pytest

from interlock import Interlock, InvalidInput, StoreUnavailable
from interlock.stores import configure
from interlock.stores.redis.connect import Connector


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "localhost:6379",
        "redis://localhost:port/0",
        "redis://localhost/0?socket_timeout=soon",
        "redis://localhost/0?colour=blue",
        "redis://localhost/0?liveness=0",
        "redis://localhost/0?orphan_grace=abc",
        "redis+sentinel://localhost:26379",
        "redis+sentinel://:26379/mymaster",
        "redis://[::1",
        "redis://localhost/database",
        "sqlite:////tmp/a#b.db",
        "sqlite://relative.db",
        "sqlite:///",
        "sqlite:////tmp/x.db?mode=ro",
        "postgresql://localhost/db",
    ],
)
def test_a_wrong_url_is_refused_in_one_sentence(url):
    with pytest.raises(StoreUnavailable, match=r"^The URL .* is wrong: ") as refused:
        Interlock(url)
    assert "\n" not in str(refused.value)


def test_passwords_are_not_shown():
    with pytest.raises(StoreUnavailable) as refused:
        Interlock("redis://:secret@h/0?x=1")
    assert "secret" not in str(refused.value)
    for url in (
        "redis://user:secret@localhost:1/0",
        "redis://:secret@localhost:1/0",
        "redis://user:a@secret@localhost:1/0",
    ):
        il = Interlock(url)
        assert "secret" not in il.url
        with pytest.raises(StoreUnavailable) as refused:
            il.acquire("s")
        assert "secret" not in str(refused.value)


def test_no_url_means_the_environments_else_a_file_of_the_users_own(monkeypatch, tmp_path):
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert Interlock().url == f"sqlite://{tmp_path}/interlock/interlock.db"
    monkeypatch.setenv("INTERLOCK_URL", "redis://example:6379/3")
    assert Interlock().url == "redis://example:6379/3"


def test_a_home_folder_may_be_abbreviated(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    Interlock("sqlite:///~/locks/a.db").acquire("s")
    assert (tmp_path / "locks" / "a.db").exists()


def test_a_sentinel_url_names_hosts_service_and_database():
    config = configure("redis+sentinel://joe:pass@one:26379,two/mymaster/2?liveness=2")
    connector = Connector(config)
    assert connector._sentinels == [("one", 26379), ("two", 26379)]
    assert connector._service == "mymaster"
    assert connector._options["db"] == 2
    assert connector._options["username"] == "joe"
    assert config.window == 2


def test_tls_and_sockets_make_their_own_kind_of_connection():
    assert (
        type(Connector(configure("rediss://h/0?ssl_cert_reqs=none"))._make(False)).__name__ == "SSLConnection"
    )
    unix = Connector(configure("unix:///run/redis.sock?db=2"))._make(False)
    assert (type(unix).__name__, unix.path, unix.db) == ("UnixDomainSocketConnection", "/run/redis.sock", 2)


def test_a_local_file_takes_no_prefix(tmp_path):
    with pytest.raises(InvalidInput, match="own local file"):
        Interlock(f"sqlite://{tmp_path}/a.db", prefix="x:")


def test_a_sentinel_that_is_away_is_told_in_one_sentence():
    il = Interlock("redis+sentinel://127.0.0.1:1,127.0.0.1:2/service/0")
    with pytest.raises(StoreUnavailable, match="No master found for 'service'") as refused:
        il.acquire("s")
    assert len(str(refused.value)) < 160


@pytest.mark.parametrize(("arguments", "says"), [((5,), "url must be a string"), ((None,), "prefix must be")])
def test_what_is_no_text_is_refused(arguments, says):
    with pytest.raises(InvalidInput, match=says):
        Interlock(*arguments, prefix=None if arguments[0] else 5)
