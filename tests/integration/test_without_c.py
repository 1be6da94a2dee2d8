"""The whole line without the compiled part: slower, and the same log, view and proof."""

import json
import subprocess
import sys

import pytest

from tests.support.captured_project import captured_database

TABLES = """
CREATE TABLE things (id int PRIMARY KEY, name text, amount numeric(10, 2), note text);
INSERT INTO things SELECT n, 'thing ' || n, n * 0.5, NULL FROM generate_series(1, 300) AS n;
CREATE TABLE wide (id int PRIMARY KEY, body text, seen timestamptz, tags text[]);
INSERT INTO wide SELECT n, repeat('x', 10 * n), '2024-01-01', ARRAY['a', NULL]
    FROM generate_series(1, 50) AS n;
"""
CHANGES = """
BEGIN;
UPDATE things SET amount = amount + 1 WHERE id <= 100;
DELETE FROM things WHERE id BETWEEN 50 AND 60;
UPDATE things SET id = id + 1000 WHERE id BETWEEN 70 AND 75;
INSERT INTO things VALUES (2000, 'tab	and \\ slash', -1.25, 'ü');
COMMIT;
UPDATE wide SET tags = '{}' WHERE id = 3;
"""
VIEW = """-- key: id
-- sinks: delta
SELECT t.id, t.name, t.amount, w.body, size(w.tags) AS tags
FROM things t LEFT JOIN wide w ON w.id = t.id
"""


def run(code, *words):
    ran = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran


@pytest.fixture
def project(stack, tmp_path, monkeypatch):
    monkeypatch.setenv("CHANGELOG_NATIVE", "python")
    with captured_database(stack, tmp_path, TABLES, capture="partitions = 3") as (made, _):
        yield made


@pytest.mark.matrix
def test_capture_rebuild_and_verify_in_python(project, monkeypatch):
    made = project
    made.execute(CHANGES)
    captured = run(
        "from changelog.cli import main; main()",
        *("capture", "--until", "now", "--project", str(made.root)),
    )
    assert captured.stderr.count("in Python, several times slower: CHANGELOG_NATIVE") == 1
    made.view("all.sql", VIEW)
    rebuilt = run(
        "from views.cli import main; main()",
        *("all", "--project", str(made.root), "--verify", "full", "--json"),
    )
    (result,) = [json.loads(line) for line in rebuilt.stdout.splitlines()]
    assert result["published"] is True
    assert result["verified"] is True
    assert rebuilt.stderr.count("in Python, several times slower: CHANGELOG_NATIVE") == 1
    rows = made.query(
        "SELECT id, name, amount, body, coalesce(cardinality(tags), -1) FROM things "
        "LEFT JOIN wide USING (id) ORDER BY id"
    )
    served = [tuple(row.values()) for row in made.delta("all")]
    assert [row[:4] for row in served] == [row[:4] for row in rows]

    # The next run takes the other way, on the same slot and log, from where this one ended.
    monkeypatch.delenv("CHANGELOG_NATIVE")
    made.execute("UPDATE things SET note = 'later' WHERE id = 1")
    made.capture()
