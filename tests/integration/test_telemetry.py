"""A collector of OpenTelemetry hears of captures and rebuilds."""

import pytest

from tests.support.captured_project import captured_database, rebuild_view
from tests.support.otlp import collector

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, amount numeric);
INSERT INTO orders SELECT n, n * 1.5 FROM generate_series(1, 30) AS n;
"""


def test_captures_and_rebuilds_are_told(stack, spark, tmp_path, capsys, monkeypatch):
    with collector() as (url, sent):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        with captured_database(stack, tmp_path / "project", TABLES) as (project, _):
            assert sent.points()["changelog_rows", "public.orders", "snapshot"] == 30
            assert "changelog capture" in sent.spans()
            project.view("copied.sql", "-- key: id\n-- sinks: delta\nSELECT * FROM orders\n")
            done = rebuild_view(capsys, monkeypatch, project, "copied")
        assert done.code == 0, done.err
        assert sent.points()["changelog_view_rows", "copied"] == 30
        spans = sent.spans()
        assert spans["publish"].parent_span_id == spans["rebuild-view"].span_id
