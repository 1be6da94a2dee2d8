"""Failed connections: what may be tried again, what not, and nothing secret."""

import socket

import psycopg2
import pytest

from changelog.contract.base.errors import (
    ConfigurationError,
    SlotError,
    SourceError,
    UnavailableError,
    UnavailableSourceError,
)
from changelog.native.libpq import stream_error
from changelog.source.connect.connect import connect

CANARY = "c4n4ry-s3cret"


@pytest.fixture
def failing(monkeypatch):
    def fail_with(text):
        def refuse(**settings):
            raise psycopg2.OperationalError(text)

        monkeypatch.setattr("changelog.source.connect.connect.psycopg2.connect", refuse)

    return fail_with


def test_a_connection_string_that_cannot_be_read_is_not_repeated():
    with pytest.raises(ConfigurationError) as caught:
        connect(f"host=db password {CANARY}")
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_no_server_at_the_address_may_be_tried_again():
    with socket.socket() as taken:  # bound but not listening
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableSourceError, match="no PostgreSQL answers") as caught:
            connect(f"postgresql://ann:{CANARY}@127.0.0.1:{port}/app")
    assert CANARY not in str(caught.value)
    assert "is the server running" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "FATAL:  the database system is starting up",
        "FATAL:  the database system is not yet accepting connections",
        "FATAL:  sorry, too many clients already",
        "FATAL:  number of requested standby connections exceeds max_wal_senders (currently 1)",
        'could not translate host name "db" to address: Name or service not known',
        "timeout expired",
    ],
)
def test_a_passing_state_of_the_server_may_be_tried_again(failing, text):
    failing(text)
    with pytest.raises(UnavailableSourceError):
        connect("host=db")


@pytest.mark.parametrize(
    "text",
    [
        'FATAL:  password authentication failed for user "ann"',
        'FATAL:  database "app" does not exist',
        'FATAL:  role "ann" does not exist',
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1"',
        "fe_sendauth: no password supplied",
        "server does not support SSL, but SSL was required",
        "FATAL:  permission denied to start WAL sender",
        "FATAL:  something that we have never read",
    ],
)
def test_a_refusal_is_not_tried_again(failing, text):
    failing(text)
    with pytest.raises(ConfigurationError, match="refuses") as caught:
        connect("host=db")
    assert not isinstance(caught.value, UnavailableError)


def test_the_password_is_cut_out_of_what_the_server_says(failing):
    failing(f"FATAL: odd {CANARY} password={CANARY}")
    with pytest.raises(ConfigurationError) as caught:
        connect(f"host=db password={CANARY}")
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "family"),
    [
        ("57P01", UnavailableSourceError),
        ("08006", UnavailableSourceError),
        ("", UnavailableSourceError),
        ("55000", SlotError),
        ("55006", SlotError),
        ("42704", SourceError),
    ],
)
def test_the_end_of_a_stream_has_the_family_of_its_reason(code, family):
    assert type(stream_error(code, "why")) is family
