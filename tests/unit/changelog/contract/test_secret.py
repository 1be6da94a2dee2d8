"""Redaction: what must go, and what must stay readable."""

from __future__ import annotations

import doctest

import pytest

from changelog.contract.base import secret
from changelog.contract.base.secret import redacted


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("postgresql://ann:p@ss/word@db/app", "postgresql://ann:***@db/app"),
        ("redis://:canary@127.0.0.1:6379/0", "redis://:***@127.0.0.1:6379/0"),
        ("postgresql://db/app?password=canary&sslmode=require", None),
        ("password=first,second", "password=***"),
    ],
)
def test_passwords_go(line: str, shown: str | None) -> None:
    result = redacted(line)
    assert "canary" not in result
    if shown is not None:
        assert result == shown


@pytest.mark.parametrize(
    "line",
    [
        "slot shop at 0/16B3748 | hint: take a new snapshot",
        "http://127.0.0.1:8081/subjects/flights-key",
        "postgresql://ann@db:5432/app",
        "host=db port=5432 user=ann dbname=app",
        "table public.password_rules, column primary_key",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert redacted(line) == line


def test_the_examples_of_the_docstring_hold() -> None:
    result = doctest.testmod(secret)
    assert result.attempted > 0
    assert result.failed == 0
