"""docs/records.md: schemas and frontiers of a real log are what the page shows."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from tests.support.captured_project import captured_database
from tests.support.page import blocks_of
from tests.support.page_lines import reader_of

PAGE = Path(__file__).parents[2] / "docs" / "records.md"
TABLE = """
CREATE TABLE orders (id integer PRIMARY KEY, customer text, total numeric(10,2));
INSERT INTO orders VALUES (1, 'Ann', 19.90), (2, 'Bo', NULL)
"""


def test_a_log_has_the_schemas_and_the_frontier_of_the_page(stack, tmp_path):
    key, value, shown = (json.loads(each.text) for each in blocks_of(PAGE) if each.kind == "json")
    endpoints = stack.endpoints()
    with captured_database(stack, tmp_path, TABLE) as (project, name):
        subjects = f"{endpoints.schema_registry}/subjects/{name}.orders"
        for part, expected in (("key", key), ("value", value)):
            found = httpx.get(f"{subjects}-{part}/versions/latest", timeout=30).json()["schema"]
            assert json.loads(found) == expected
        shell = reader_of(tmp_path, endpoints, project.dsn, name)
        said = shell.run(f"changelog read {name}._frontier --exit --json")
        records = [each for each in map(json.loads, said.splitlines()) if each["key"] == name]
    frontier = json.loads(records[-1]["value"])
    assert forms(frontier) == forms(shown)
    topic = f"{name}.orders"
    assert (frontier["slot"], frontier["tables"]) == (name, {topic: ["public", "orders"]})
    assert sum(frontier["ends"][topic]) == 2


def forms(found):
    """Return the type of each part of an object, by its name."""
    return {name: type(value) for name, value in found.items()}
