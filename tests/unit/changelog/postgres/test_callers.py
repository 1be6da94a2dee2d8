"""Capture, a connector and a sink of views give the same hint for the same refusal."""

import psycopg2
import pytest

from changelog.connect.postgres.session import DatabaseAddress, Session
from changelog.contract.base.errors import ConfigurationError, SinkError, UnavailableError
from changelog.source.connect.connect import connect
from views.sinks.postgres.server import PostgresClient

URL = "postgresql://ann:s3cret@db:5432/app"
REFUSED = (
    'FATAL:  role "ann" is not permitted to log in',
    'FATAL:  permission denied for database "app"',
    'FATAL:  no pg_hba.conf entry for host "h", no encryption',
    "FATAL:  something that is not in the table",
)
AWAY = ("Connection refused", "FATAL:  the database system is starting up")


def of_capture():
    connect(URL)


def of_a_connector():
    Session(
        DatabaseAddress(url=URL, application="t", named="connection.url", look_at="connection.url")
    )


def of_a_sink():
    with PostgresClient(URL, retry_seconds=0).connection():
        pass


CALLERS = (of_capture, of_a_connector, of_a_sink)


def fails(monkeypatch, call, text):
    def refuse(**_):
        raise psycopg2.OperationalError(f"connection to server failed: {text} (s3cret)")

    monkeypatch.setattr(psycopg2, "connect", refuse)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is the question
        call()
    assert "s3cret" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_ends_it_with_the_same_hint(monkeypatch, text):
    errors = [fails(monkeypatch, call, text) for call in CALLERS]
    assert [isinstance(each, UnavailableError) for each in errors] == [False] * 3
    assert isinstance(errors[0], ConfigurationError)
    assert isinstance(errors[1], SinkError)
    assert isinstance(errors[2], SinkError)
    assert all(errors[0].hint in each.hint for each in errors)


@pytest.mark.parametrize("text", AWAY)
def test_a_server_that_is_away_may_be_asked_again(monkeypatch, text):
    errors = [fails(monkeypatch, call, text) for call in CALLERS]
    assert [isinstance(each, UnavailableError) for each in errors] == [True] * 3
