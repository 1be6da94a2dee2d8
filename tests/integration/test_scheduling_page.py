"""docs/scheduling.md: its commands and settings, and who hears of a run that fails."""

from __future__ import annotations

import json
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.support.captured_project import captured_database
from tests.support.http_listener import Quiet, listening
from tests.support.page_lines import block_of, commands_of, reader_of
from tests.support.scrape import samples

pytestmark = pytest.mark.matrix
PAGE = Path(__file__).parents[2] / "docs" / "scheduling.md"
ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, amount numeric(8, 2));
INSERT INTO orders VALUES (1, 2.50), (2, 3);
"""
COPY = "-- key: id\n-- sinks: delta\nSELECT id, amount FROM orders"
TWICE = "-- key: id\n-- sinks: delta\nSELECT 1 AS id, amount FROM orders"
MAIL = '#!/bin/sh\nprintf "%s|" "$@" > {folder}/mail\ncat >> {folder}/mail\n'


@contextmanager
def listener():
    """Take what is sent to it by POST and PUT; gives its address, and what came."""
    heard: list[tuple[str, str, bytes]] = []

    class Takes(Quiet, BaseHTTPRequestHandler):
        def _take(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            heard.append((self.command, self.path, body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_PUT = _take  # noqa: N815 - so the server calls them

    with listening(Takes) as address:
        yield address, heard


def test_a_night_is_told_to_all_that_the_page_names(stack, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    # In place of the program of this machine, which may have none and must send nothing.
    (tools / "mail").write_text(MAIL.format(folder=tmp_path))
    (tools / "mail").chmod(0o755)
    (rebuild,) = (each for each in commands_of(PAGE) if each.startswith("rebuild-view"))
    with (
        captured_database(stack, tmp_path / "shop", ORDERS) as (project, name),
        listener() as (address, heard),
    ):
        shell = reader_of(
            project.root, stack.endpoints(), project.dsn, name, VIEWS_WEBHOOK=f"{address}/hook"
        )
        path = f"{tools}:{shell.environment['PATH']}"
        shell = type(shell)(shell.folder, {**shell.environment, "PATH": path})
        project.view("copied.sql", COPY)
        metrics = tmp_path / "changelog.prom"
        runs = block_of(PAGE, "toml", "[runs]").text
        for page, here in {
            "/var/lib/node_exporter/changelog.prom": str(metrics),
            "http://pushgateway.example.com:9091": address,
        }.items():
            assert page in runs
            runs = runs.replace(page, here)
        schedules = block_of(PAGE, "toml", "[schedule.nightly]").text
        settings = project.root / "changelog.toml"
        settings.write_text(f"{settings.read_text('utf-8')}\n{runs}\n{schedules}", encoding="utf-8")

        told = json.loads(shell.run(rebuild))
        assert (told["view"], told["verified"], told["published"]) == ("copied", True, True)
        found = samples(metrics.read_text())
        assert found["changelog_view_verified", (("view", "copied"),)] == 1
        names = {each for each, _ in found}
        for line in block_of(PAGE, "promql", "time()").text.splitlines():
            assert any(each in line for each in names), line
        assert {each[:2] for each in heard} == {("PUT", "/metrics/job/rebuild-view")}
        assert not (tmp_path / "mail").exists(), "it went well"

        project.view("twice.sql", TWICE)
        shell.run(f"{rebuild} || test $? = 1")
        subject, _, mailed = (tmp_path / "mail").read_text().partition("|data@example.com|")
        assert subject == "-s|views failed"
        (posted,) = (json.loads(each[2]) for each in heard if each[:2] == ("POST", "/hook"))
        for each in (json.loads(mailed), posted):
            assert (each["status"], each["failed"], each["exit_code"]) == ("failed", ["twice"], 1)

        next_ones = shell.run("rebuild-view schedule --next 2>&1")
        assert "nightly" in next_ones
        assert "morning" in next_ones
        shell.follow("rebuild-view schedule", lambda said: said.count(": next at ") == 2)


def test_a_declared_schedule_rebuilds_at_its_time(stack, tmp_path):
    """The schedules of the page, the night each minute."""
    with captured_database(stack, tmp_path / "shop", ORDERS) as (project, name):
        shell = reader_of(project.root, stack.endpoints(), project.dsn, name)
        project.view("copied.sql", COPY)
        schedules = block_of(PAGE, "toml", "[schedule.nightly]").text
        night = 'cron = "0 3 * * *"'
        assert night in schedules
        settings = project.root / "changelog.toml"
        settings.write_text(
            settings.read_text("utf-8") + schedules.replace(night, 'cron = "* * * * *"'),
            encoding="utf-8",
        )
        ended = "schedule nightly: ended with code"
        told = shell.follow("rebuild-view schedule", lambda said: ended in said)
        assert f"{ended} 0" in told
        assert project.history("copied")[-1][1] == "published"
        assert project.delta("copied") == [
            {"id": 1, "amount": Decimal("2.50")},
            {"id": 2, "amount": Decimal("3.00")},
        ]
