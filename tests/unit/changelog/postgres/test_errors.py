"""Errors of PostgreSQL are classified by libpq's words and by SQLSTATEs."""

import psycopg2
import pytest
from psycopg2 import errors

from changelog.contract.base.errors import ConfigurationError
from changelog.postgres.connection import parts_of
from changelog.postgres.errors import is_busy, is_lost, why_not_opened

SERVER = 'connection to server at "db", port 5432 failed: '


@pytest.mark.parametrize(
    ("text", "answers", "passes", "hint"),
    [
        ("Connection refused\n\tIs the server running on that host?", False, True, ""),
        ("timeout expired", False, True, ""),
        ("FATAL:  the database system is starting up", True, True, ""),
        ("FATAL:  sorry, too many clients already", True, True, ""),
        ('FATAL:  password authentication failed for user "a"', True, False, "check user"),
        ('FATAL:  database "x" does not exist', True, False, "check the names"),
        ("FATAL:  something new", True, False, ""),
        ("SSL error: certificate verify failed", True, False, "sslrootcert"),
        ('FATAL:  no pg_hba.conf entry for host "h", no encryption', True, False, "wants TLS"),
    ],
)
def test_a_connection_that_cannot_be_opened(text, answers, passes, hint):
    why = why_not_opened(psycopg2.OperationalError(SERVER + text), {})
    assert (why.answers, why.passes) == (answers, passes)
    assert hint in why.hint
    assert bool(why.hint) == bool(hint)
    assert "\n" not in why.message


def test_a_password_is_in_no_words():
    error = psycopg2.OperationalError('invalid port "p4ss/w0rd@db"')
    assert "p4ss" not in why_not_opened(error, {"password": "p4ss/w0rd"}).message


def test_a_string_that_cannot_be_read_is_not_quoted():
    with pytest.raises(ConfigurationError, match=r"sinks\.postgres\.url cannot") as raised:
        parts_of("host=db password='secret", named="sinks.postgres.url", example="e")
    assert "secret" not in str(raised.value)


def test_what_loses_a_connection_and_what_waits_for_others():
    ended = errors.AdminShutdown()
    assert not is_lost(ended, closed=False)  # without a code of the server
    assert is_lost(ended, closed=True)
    assert not is_busy(ended)
