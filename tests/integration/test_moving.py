"""A project that `changelog init --from` has translated, built and compared with its origin.

The library and its description are ours, in pgsync's documented form (`tests/support/library.py`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from benchmarks import pgsync
from tests.support import library
from tests.support.captured_project import CapturedProject, captured_database, rebuild_view
from tests.support.own_server import server_of
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.fixture
def project(stack, tmp_path):
    with captured_database(stack, tmp_path / "p", library.TABLES + library.ROWS) as (made, _):
        yield made


server = server_of((15,))
"""A build that has the output plugin of pgsync, test_decoding."""


@pytest.fixture
def project_of_15(server, stack, tmp_path):
    at = replace(stack.endpoints(), postgres=server.dsn)
    source: Any = SimpleNamespace(endpoints=lambda: at)
    with captured_database(source, tmp_path / "p", library.TABLES + library.ROWS) as (made, _):
        yield made


def index_of(project: CapturedProject) -> str:
    """Return a name that no other test's index has."""
    return f"books_{project.query('SELECT current_database()')[0][0]}"


def translate(project: CapturedProject, *options: str) -> dict[str, Any]:
    """Translate the description, and move its views to the project that is captured."""
    database = project.query("SELECT current_database()")[0][0]
    schema = project.root / "schema.json"
    schema.write_text(json.dumps(library.schema(database, index_of(project))), encoding="utf-8")
    moved = project.root / "moved"
    words = [sys.executable, "-m", "changelog", "init", str(moved), "--from", str(schema)]
    ran = subprocess.run(
        [*words, "--json", *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    (moved / "views").rename(project.root / "views")
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def documents(url: str, index: str) -> list[dict[str, Any]]:
    """Return the documents of an index, by their id."""
    answer = httpx.get(f"{url}/{index}/_search", params={"size": "100"}).json()
    return sorted((hit["_source"] for hit in answer["hits"]["hits"]), key=lambda d: d["book_id"])


def answers(project: CapturedProject) -> list[dict[str, Any]]:
    """Return PostgreSQL's own documents."""
    return [row[0] for row in project.query(library.ANSWER)]


def test_a_translated_index_has_postgresqls_own_documents(project, endpoints, capsys, monkeypatch):
    answer = translate(project, "--postgres", project.dsn)
    assert [line for line in answer["keys"] if line["outcome"] == "NOT carried"] == []
    view = index_of(project)
    ran = rebuild_view(capsys, monkeypatch, project, view, "--json")
    assert ran.code == 0, ran.err
    assert documents(endpoints.search, view) == answers(project)
    before = answers(project)
    project.execute(library.CHANGES)
    project.capture()
    ran = rebuild_view(capsys, monkeypatch, project, view, "--json")
    assert ran.code == 0, ran.err
    assert documents(endpoints.search, view) == answers(project) != before


def test_a_view_with_places_to_fill_in_is_refused_by_the_plan(project, capsys, monkeypatch):
    translate(project)
    ran = rebuild_view(capsys, monkeypatch, project, index_of(project), "--plan")
    assert ran.code == 2
    assert "FILL_IN" in ran.err


@pytest.mark.matrix
def test_pgsync_has_the_same_documents(project_of_15, endpoints, capsys, monkeypatch, tmp_path):
    """Install pgsync, run it on the description itself, and compare the two indexes."""
    project = project_of_15
    translate(project, "--postgres", project.dsn)
    view = index_of(project)
    assert rebuild_view(capsys, monkeypatch, project, view, "--json").code == 0
    ours = [as_pgsync(document) for document in documents(endpoints.search, view)]
    theirs_index = f"pgsync_{view}"
    database = project.query("SELECT current_database()")[0][0]
    at = replace(endpoints, postgres=project.dsn)
    commands = pgsync.installed(Path(tmp_path))
    description = library.schema(database, theirs_index)
    with pgsync.syncing(commands, at, tmp_path, description):
        wait_until(
            lambda: documents_of_pgsync(endpoints.search, theirs_index) == ours,
            120.0,
            "pgsync has the documents",
        )


def documents_of_pgsync(url: str, index: str) -> list[dict[str, Any]]:
    """Return pgsync's documents without its own field, lists in the order of our views."""
    try:
        found = documents(url, index)
    except KeyError:
        return []  # the index is not there yet
    for document in found:
        document.pop("_meta")
        for name in ("writers", "orders"):
            document[name] = document[name] and sorted(document[name], key=lambda d: d["id"])
        document["subjects"] = document["subjects"] and sorted(document["subjects"])
        for order in document["orders"] or []:
            order["notes"] = order["notes"] and sorted(order["notes"], key=lambda d: d["id"])
    return found


def as_pgsync(document: dict[str, Any]) -> dict[str, Any]:
    """Return one of our documents with the values that are texts here as pgsync has them."""
    page = document["about_pages_0_n"]
    document["about_pages_0_n"] = page and json.loads(page)
    for order in document["orders"] or []:
        order["price"] = order["price"] and float(order["price"])
    document["subjects"] = document["subjects"] and sorted(document["subjects"])
    return document
