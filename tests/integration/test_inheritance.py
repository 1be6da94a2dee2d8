"""Tables that others inherit from: what is on the log is said wherever it is judged."""

import json

import pytest

from changelog.contract.rows.relation import TableName
from tests.integration.test_incompatible import Capture
from tests.support.captured_project import CapturedProject, rebuild_view
from tests.support.matrix import first
from tests.support.own_server import capture_of, server_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.services

DEADLINE_S = 120.0
PARENT, CHILD, LATER = (TableName("public", name) for name in ("parent", "child", "later"))
FAMILY = (
    "CREATE TABLE parent (id integer PRIMARY KEY, text text)",
    "CREATE TABLE child (more integer, PRIMARY KEY (id)) INHERITS (parent)",
    "INSERT INTO parent VALUES (1, 'own')",
    "INSERT INTO child VALUES (1, 'of the child', 5), (2, 'another', 6)",
)
SAID = "public.parent has only its own rows, without those of public.child, which inherit from it"


server = server_of(first(1, [18, 15]))
capture = capture_of(Capture, *FAMILY)


def children(capture):
    found = capture.frontier()
    return {} if found is None else dict(found.children)


def warned(capsys, monkeypatch, capture):
    """What a plan of each view warns of, which is what the rebuild says too."""
    project = CapturedProject(capture.folder, capture.dsn)
    ran = rebuild_view(capsys, monkeypatch, project, "--all", "--plan", "--json")
    assert ran.code == 0, ran.err
    return {found["view"]: found["warnings"] for found in ran.results}


@pytest.mark.matrix
def test_a_parent_is_told_at_check_at_start_in_plans_and_by_verify(capture, capsys, monkeypatch):
    code, out, _ = capture.run("--check", "--json")
    assert code == 0
    notes = [each for each in json.loads(out)["checks"] if each["check"] == "inheritance"]
    assert [(each["state"], each["found"].startswith(SAID)) for each in notes] == [("note", True)]
    views = capture.folder / "views"
    views.mkdir()
    (views / "bare.sql").write_text("-- key: id\n-- sinks: delta\nSELECT id, text FROM parent\n")
    (views / "whole.sql").write_text(
        "-- key: origin, id\n-- sinks: delta\nSELECT 'parent' AS origin, id, text FROM parent\n"
        "UNION ALL SELECT 'child' AS origin, id, text FROM child\n"
    )
    capture.begin()
    wait_until(lambda: children(capture) == {PARENT: (CHILD,)}, DEADLINE_S, "the child is known")
    assert SAID in capture.said()
    found = warned(capsys, monkeypatch, capture)
    assert found["whole"] == []
    assert [each.startswith(SAID) for each in found["bare"]] == [True]
    (line,) = capture.command("verify", "--json")
    told = {table["view"]: table["notes"] for table in line["tables"]}
    assert line["verified"] is True
    assert "compared with ONLY public.parent" in " ".join(told["public.parent"])
    assert told["public.child"] == []
    # One that is made, and one that is made a child, while capture runs.
    capture.sql("CREATE TABLE grandchild (PRIMARY KEY (id)) INHERITS (child)")
    capture.sql("CREATE TABLE later (id integer PRIMARY KEY, text text)")
    capture.sql("ALTER TABLE later INHERIT parent")
    grandchild = TableName("public", "grandchild")
    wait_until(
        lambda: children(capture) == {PARENT: (CHILD, grandchild, LATER), CHILD: (grandchild,)},
        DEADLINE_S,
        "all children are known",
    )
    (status,) = capture.command("status", "--json", codes={0, 1})
    assert status["children"]["public.child"] == ["public.grandchild"]
    assert len(warned(capsys, monkeypatch, capture)["whole"]) == 2
    capture.sql("ALTER TABLE later NO INHERIT parent", "DROP TABLE grandchild")
    wait_until(lambda: children(capture) == {PARENT: (CHILD,)}, DEADLINE_S, "they are let go")


@pytest.mark.matrix
def test_partitions_are_no_children(capture):
    capture.sql("DROP TABLE child")
    capture.sql(
        "CREATE TABLE parts (id integer PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parts DEFAULT",
    )
    capture.finish()
    assert children(capture) == {}


@pytest.mark.matrix
def test_twin_without_the_children_on_the_log_nothing_warns(capture, capsys, monkeypatch):
    views = capture.folder / "views"
    views.mkdir()
    (views / "bare.sql").write_text("-- key: id\n-- sinks: delta\nSELECT id, text FROM parent\n")
    capture.finish(defect="forget_children")
    with pytest.raises(AssertionError):
        assert warned(capsys, monkeypatch, capture)["bare"] != []


def test_postgresqls_sql_reads_a_parent_by_only(capture, capsys, monkeypatch):
    """Both have PostgreSQL's meaning: one is refused, since the log has not the rows of both."""
    views = capture.folder / "views"
    views.mkdir()
    form = "-- key: id\n-- sinks: delta\n-- dialect: postgres\nSELECT id, text FROM {}\n"
    (views / "own.sql").write_text(form.format("ONLY parent"))
    capture.begin()
    wait_until(lambda: children(capture) == {PARENT: (CHILD,)}, DEADLINE_S, "the child is known")
    assert warned(capsys, monkeypatch, capture) == {"own": []}
    (views / "all.sql").write_text(form.format("public.parent p"))
    project = CapturedProject(capture.folder, capture.dsn)
    ran = rebuild_view(capsys, monkeypatch, project, "all", "--plan")
    assert ran.code == 2
    assert "public.parent has the rows of public.child too" in ran.err
    assert "write FROM ONLY parent" in ran.err
