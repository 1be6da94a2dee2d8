"""Where the token of a Spark Connect server is, and who gets it."""

import os
import socket
import stat
import threading

import pytest

from changelog.contract.base.errors import ConfigurationError, UnavailableError
from changelog.stack.base.ports import LOOPBACK, pick
from replay.spark import connect_server
from replay.spark.connect_server import serve
from replay.spark.files import check_writable
from replay.spark.server_token import SETTING, TOKEN, served_token, taken_token, token_file
from replay.spark.session import SessionSettings, check_master, check_reachable

HERE = "sc://127.0.0.1:4711"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """A home of its own, and no token in the environment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv(TOKEN, raising=False)


def taken(url):
    """Return the address for Spark, and the token that it finds beside it."""
    with taken_token(url) as address:
        return address, os.environ.get(TOKEN)


def test_the_token_lives_as_long_as_the_server_in_a_file_of_its_user():
    with served_token(4711) as place:
        token = os.environ[TOKEN]
        assert place == token_file(4711)
        assert place.read_text() == token
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert TOKEN not in os.environ
    assert not place.exists()


def test_another_server_has_another_token():
    with served_token(4711):
        first = os.environ[TOKEN]
    with served_token(4711):
        assert os.environ[TOKEN] != first


def test_a_token_of_the_environment_is_kept_in_no_file(monkeypatch):
    monkeypatch.setenv(TOKEN, "given")
    with served_token(4711) as place:
        assert place is None
        assert not token_file(4711).exists()
    assert taken(HERE) == ("sc://localhost:4711", "given")


def test_a_client_on_this_machine_finds_it_and_no_other_host_gets_it(monkeypatch):
    with served_token(4711):
        token = os.environ[TOKEN]
        monkeypatch.delenv(TOKEN)
        assert taken(HERE) == ("sc://localhost:4711", token)
        assert taken("sc://localhost:4711") == ("sc://localhost:4711", token)
        assert taken("sc://127.0.0.1:4712")[1] is None
        assert taken("sc://spark.internal:4711") == ("sc://spark.internal:4711", None)
        assert taken("sc://127.0.0.1:4711/;token=own") == ("sc://localhost:4711/;token=own", None)
        assert TOKEN not in os.environ


def test_a_file_that_others_may_read_is_refused(monkeypatch):
    with served_token(4711):
        monkeypatch.delenv(TOKEN)
        token_file(4711).chmod(0o644)
        with pytest.raises(ConfigurationError, match="others may read"):
            taken(HERE)


def test_a_port_that_is_taken_is_told_before_spark_starts():
    with socket.create_server((LOOPBACK, 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"{port}: Address already in use.*--port"):
            serve(SessionSettings(), host=LOOPBACK, port=port, ready=print, stop=lambda: True)


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local[2,3]", "spark://a:7077"]
)
def test_masters_that_spark_has(master):
    check_master(master)


@pytest.mark.parametrize("master", ["", "lokal", "local[]", "local[x]", "http://a:1", "spark://"])
def test_a_master_that_spark_does_not_have_is_told_before_it_starts(master):
    with pytest.raises(ConfigurationError, match="there is no Spark master"):
        check_master(master)


def test_a_warehouse_that_cannot_be_written_is_told_before_spark_starts(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be written: Not a directory"):
        check_writable(str(tmp_path / "file" / "warehouse"))
    check_writable(str(tmp_path / "new"))
    assert list((tmp_path / "new").iterdir()) == []


def test_a_standalone_master_that_does_not_listen_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(UnavailableError, match="no Spark master answers at spark://"):
        check_reachable(f"spark://127.0.0.1:{port}")
    check_reachable("local[2]")


def test_a_server_that_is_asked_to_stop_while_spark_starts_ends_at_once(monkeypatch) -> None:
    begun, over = threading.Event(), threading.Event()

    def never(_settings):
        begun.set()
        over.wait(60)

    monkeypatch.setattr(connect_server, "session", never)
    serve(
        SessionSettings(extra={SETTING: "token"}),
        host="127.0.0.1",
        port=pick(),
        ready=lambda _: pytest.fail("it never was"),
        stop=begun.is_set,
    )
    over.set()


def test_what_ends_the_start_of_spark_is_told(monkeypatch) -> None:
    def refused(_settings):
        raise ConfigurationError("Spark does not start")

    monkeypatch.setattr(connect_server, "session", refused)
    with pytest.raises(ConfigurationError, match="does not start"):
        serve(
            SessionSettings(extra={SETTING: "token"}),
            host="127.0.0.1",
            port=pick(),
            ready=lambda _: None,
            stop=lambda: False,
        )
