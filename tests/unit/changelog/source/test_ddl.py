"""Messages of the event triggers."""

import json
import re

import pytest

from changelog.contract.base.errors import ProtocolError
from changelog.source.tables.ddl import WITHHELD, SchemaChange

MESSAGE = {
    "tag": "ALTER TABLE",
    "kind": "table",
    "identity": 'public."Odd name"',
    "tables": [17, "18"],
    "query": "ALTER TABLE …",
    "withheld": False,
    "user": "me",
    "role": "owner",
}


def test_a_message_of_the_triggers_is_read():
    found = SchemaChange.parse(json.dumps(MESSAGE).encode())
    assert (found.tag, found.tables, found.query) == ("ALTER TABLE", (17, 18), "ALTER TABLE …")
    assert SchemaChange.parse(json.dumps({**MESSAGE, "query": None}).encode()).query is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b"null",
        b"\xff",
        json.dumps({**MESSAGE, "tables": 5}).encode(),
    ],
)
def test_another_message_is_refused_without_its_content(content):
    with pytest.raises(ProtocolError, match=r'the prefix "changelog\.ddl"'):
        SchemaChange.parse(content)


@pytest.mark.parametrize(
    ("query", "withheld"),
    [
        ("ALTER ROLE a PASSWORD 'x'; ALTER TABLE t ADD c int", True),
        ("… OPTIONS (user 'me', password 'x')", True),
        ("COMMENT ON TABLE t IS 'postgresql://me:x@host/db'", True),
        ("COMMENT ON TABLE t IS 'https://host:80/path'", False),
        ("ALTER TABLE t ADD c int", False),
    ],
)
def test_what_may_hold_a_password_is_known(query, withheld):
    assert (re.search(WITHHELD, query, re.IGNORECASE) is not None) == withheld
