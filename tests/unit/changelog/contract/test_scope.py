"""What of a table a topic holds, and that a frontier carries it."""

from __future__ import annotations

import json

import pytest

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.form import Envelope, Form, Output
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.scope import WHOLE, Scope

JSON_NESTED = Form(Output.JSON, Envelope.NESTED)
NARROW = Scope(
    operations=("insert", "update"),
    dropped=("ssn", "secret*"),
    masked=(("email", "hash"), ('"e*"', "redact")),
    mask_key="ab12",
    rows="id > 5",
    keyed=False,
    copied=False,
)


def test_a_frontier_carries_the_scopes_and_says_nothing_of_whole_tables():
    frontier = Frontier(slot="s", epoch=1, lsn=Lsn(1), ts_us=0, scopes={"orders": NARROW})
    read = Frontier.from_json(frontier.to_json())
    assert read == frontier
    assert read.scope_of("orders") == NARROW
    assert read.scope_of("others") == WHOLE


def test_a_frontier_carries_the_form_and_no_reader_takes_it_for_another():
    scope = Scope(form=JSON_NESTED)
    frontier = Frontier(slot="s", epoch=1, lsn=Lsn(1), ts_us=0, scopes={"orders": scope})
    assert Frontier.from_json(frontier.to_json()).scope_of("orders") == scope
    assert scope.obstacles() == ()
    raw = json.loads(frontier.to_json())
    raw["scopes"]["orders"]["envelope"] = "onion"
    with pytest.raises(CorruptRecordError, match="onion"):
        Frontier.from_json(json.dumps(raw))


def test_a_frontier_of_before_scopes_is_of_whole_tables():
    raw = json.loads(Frontier(slot="s", epoch=1, lsn=Lsn(1), ts_us=0).to_json())
    del raw["scopes"]
    assert Frontier.from_json(json.dumps(raw)).scopes == {}


def test_a_scope_of_a_later_version_is_not_taken_for_something_wider():
    raw = json.loads(Frontier(slot="s", epoch=1, lsn=Lsn(1), ts_us=0).to_json())
    raw["scopes"] = {"orders": {"sampled": 0.1}}
    with pytest.raises(CorruptRecordError, match="sampled"):
        Frontier.from_json(json.dumps(raw))


def test_patterns_of_columns_and_quoted_names():
    assert NARROW.drops("ssn")
    assert NARROW.drops("secret_plan")
    assert not NARROW.drops("ssn2")
    assert NARROW.mask_of("email") == "hash"
    assert NARROW.mask_of("e*") == "redact"
    assert NARROW.mask_of("entry") is None


def test_what_cannot_be_rebuilt_says_why_and_what_is_narrowed_says_so():
    assert NARROW.obstacles() == (
        "it was captured without delete, truncate",
        "its table was not copied (--skip-snapshot), it holds changes alone",
    )
    assert Scope(dropped=("a",), rows="x").obstacles() == ()
    assert "columns left out: ssn, secret*" in NARROW.notes()
    assert "only rows where id > 5" in NARROW.notes()
    assert WHOLE.obstacles() == WHOLE.notes() == ()
