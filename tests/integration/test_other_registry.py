"""A registry that was emptied, or is another one, is noticed before a record is written."""

import socket
from contextlib import closing

import pytest

from changelog.sink.registry import SchemaRegistry
from tests.integration.test_incompatible import Capture
from tests.support.capture_command import capture_with

pytestmark = [pytest.mark.services]

SAID = "it was emptied, or is another one"


capture = capture_with(
    Capture,
    "CREATE TABLE other (id integer PRIMARY KEY, text text)",
    "INSERT INTO other VALUES (1, 'kept')",
    "CREATE TABLE empty (id integer PRIMARY KEY, text text)",
    finishes=True,
    notes=20,
)


def forget(capture, registry, *subjects):
    with closing(SchemaRegistry(registry)) as there:
        for subject in subjects:
            there.remove(f"{capture.prefix}.{subject}")


@pytest.mark.parametrize(
    "subjects",
    [("notes-key",), pytest.param(("notes-key", "notes-value"), marks=pytest.mark.matrix)],
)
def test_a_registry_that_was_emptied_is_named_and_mended(capture, registry, subjects):
    forget(capture, registry, *subjects)
    capture.sql("UPDATE notes SET text = 'new' WHERE id = 1", "UPDATE other SET text = 'new'")
    before = capture.frontier()
    for words in (("--check", "--json"), ("--until", "now")):
        code, out, said = capture.run(*words)
        assert code == 1, said
        assert SAID in out + said
        assert "public.other" not in said
    assert capture.frontier() == before
    capture.set(on_incompatible="resnapshot")
    assert SAID in capture.finish()
    assert [capture.differing(table) for table in ("notes", "other")] == [[], []]
    (line,) = capture.command("verify", "--json")
    assert line["verified"] is True
    assert SAID not in capture.finish()


@pytest.mark.matrix
def test_the_others_go_on_without_the_table(capture, registry):
    forget(capture, registry, "notes-key", "notes-value")
    capture.set(on_error="log")
    capture.sql("UPDATE other SET text = 'new'")
    capture.finish()
    assert SAID in capture.excluded()["public.notes"]
    assert capture.differing("other") == []


@pytest.mark.matrix
def test_topics_of_whose_records_schemas_are_lost_are_not_exact(capture, registry):
    forget(capture, registry, "notes-value")
    (answer,) = capture.command("topics", "--json", codes={4})
    verdicts = {topic["table"]: topic["verdict"] for topic in answer["topics"]}
    assert verdicts.pop("public.notes") == "not-exact"
    assert {*verdicts.values()} == {"exact"}
    (topic,) = (topic for topic in answer["topics"] if topic["table"] == "public.notes")
    assert topic["reasons"] == ["the schema registry does not have the schemas of its records"]
    assert "--on-incompatible resnapshot" in topic["remedies"][0]
    (state,) = capture.command("status", "--json", "--allow-inactive", codes={1})
    (problem,) = state["problems"]
    assert topic["remedies"][0] in problem


def test_a_registry_that_is_away_is_told_by_who_looks_at_the_log(capture):
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        away = ("-r", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        (state,) = capture.command("status", "--json", "--allow-inactive", *away, codes={1})
        (answer,) = capture.command("topics", "--json", *away, codes={1})
        _, _, said = capture.run_other("topics", *away)
    (why,) = state["problems"]
    assert state["unanswered"] == {"registry": why}
    assert f"no schema registry answers at {away[1]}" in why
    assert (state["not_captured"], state["frontier"] is None) == ({}, False)
    assert answer["schemas_unknown"] in why
    assert {topic["verdict"] for topic in answer["topics"]} == {"exact"}
    assert answer["schemas_unknown"] in said


@pytest.mark.matrix
def test_a_frontier_names_the_ids_of_keys_and_keeps_them(capture, registry):
    with closing(SchemaRegistry(registry)) as there:
        topics = [f"{capture.prefix}.{each}" for each in ("notes", "other", "empty")]
        ids = {topic: there.key_id(topic) for topic in topics}
    assert capture.frontier().key_ids == ids
    capture.sql("UPDATE other SET text = 'new'")
    capture.finish()
    assert capture.frontier().key_ids == ids
