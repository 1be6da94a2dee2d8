"""Who hears of a run: a command, a webhook that fails at first, a file of metrics."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from changelog.config import load_project
from changelog.contract.base.errors import ConfigurationError, RefutedError
from changelog.runtime import webhook as webhook_module
from tests.support.http_listener import Quiet, listening
from views.base.config import RebuildSettings
from views.generations.history import PUBLISHED, REFUTED, GenerationHistory, HistoryRow
from views.rebuild.result.report import Outcome, ViewResult
from views.runs.tell import told

DONE = ViewResult(
    view="a",
    generation=3,
    rows=7,
    records_read=9,
    verified=True,
    mismatches=0,
    published=True,
    exact_until_ms=1_700_000_000_000,
    seconds={"total": 1.5},
)
REFUTED_B = ViewResult(view="b", verified=False, mismatches=2, error=RefutedError("2 rows differ"))
WELL, BADLY = Outcome.of([DONE]), Outcome.of([DONE, REFUTED_B])


@pytest.fixture
def settings(tmp_path: Path):
    def made(**runs: str) -> RebuildSettings:
        lines = ['[kafka]\nbrokers = "127.0.0.1:1"', "[runs]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in runs.items()]
        (tmp_path / "changelog.toml").write_text("\n".join(lines))
        return RebuildSettings(project=load_project(tmp_path, needs=[]))

    return made


def run(settings: RebuildSettings, outcome: Outcome) -> None:
    with told(["a", "b"], settings) as tell_of:
        tell_of(outcome)


@contextmanager
def webhook(*statuses: int) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """A server that answers with each of the statuses in turn, and then well."""
    heard: list[dict[str, object]] = []
    left = list(statuses)

    class Answers(Quiet, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(left.pop(0) if left else 204)
            self.end_headers()

    with listening(Answers) as address:
        yield f"{address}/s3cret", heard


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_module, "_FIRST_WAIT_S", 0.01)


def test_a_failed_run_is_told_by_a_command_with_one_object(settings, tmp_path) -> None:
    heard = tmp_path / "heard.json"
    run(settings(on_failure=f"cat > {heard}"), WELL)
    assert not heard.exists()
    run(settings(on_failure=f"cat > {heard}"), BADLY)
    said = json.loads(heard.read_text())
    assert (said["status"], said["exit_code"], said["failed"]) == ("failed", 3, ["b"])
    assert [(view["view"], view["published"]) for view in said["views"]] == [
        ("a", True),
        ("b", False),
    ]
    assert said["error"] == "2 rows differ"


def test_a_run_that_could_not_begin_is_told(settings, tmp_path) -> None:
    heard = tmp_path / "heard.json"
    with pytest.raises(ConfigurationError), told(["a", "b"], settings(on_failure=f"cat > {heard}")):
        raise ConfigurationError("no such broker")
    said = json.loads(heard.read_text())
    assert (said["exit_code"], said["failed"], said["error"]) == (2, ["a", "b"], "no such broker")


def test_a_webhook_is_asked_again_while_it_cannot(settings) -> None:
    with webhook(503, 429) as (url, heard):
        run(settings(webhook=url), BADLY)
        assert [each["status"] for each in heard] == ["failed"] * 3
        run(settings(webhook=url), WELL)
        assert len(heard) == 3
        run(settings(webhook=url, webhook_on="always"), WELL)
        assert heard[-1]["status"] == "done"


def test_a_webhook_that_refuses_or_is_away_is_a_warning_without_its_address(
    settings, caplog
) -> None:
    with webhook(404) as (url, heard):
        run(settings(webhook=url), BADLY)
        assert len(heard) == 1
    run(settings(webhook=url), BADLY)
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(texts) == 2
    assert "the webhook was not told of the run: it answered 404" in texts[0]
    assert "s3cret" not in "".join(texts)


def test_a_command_that_fails_is_a_warning(settings, caplog) -> None:
    run(settings(on_failure="exit 7"), BADLY)
    assert "ended with 7" in caplog.text


def test_metrics_say_when_each_view_was_last_published(settings, tmp_path) -> None:
    file = tmp_path / "views.prom"
    made = settings(metrics_file=str(file))
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    row = HistoryRow(view="b", generation=1, state=PUBLISHED, at=at, ts=at)
    GenerationHistory(made.warehouse).append([row, replace(row, generation=2, state=REFUTED)])
    run(made, BADLY)
    found = {
        (sample.name, sample.labels.get("view")): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }
    assert found["changelog_run_exit_code", None] == 3
    assert found["changelog_view_rows", "a"] == 7
    assert found["changelog_view_run_seconds", "a"] == 1.5
    assert found["changelog_view_deadline_timestamp_seconds", "a"] == 1_700_000_000
    assert (found["changelog_view_verified", "a"], found["changelog_view_verified", "b"]) == (1, 0)
    assert found["changelog_view_exit_code", "b"] == 3
    assert found["changelog_view_published_timestamp_seconds", "b"] == at.timestamp()
    assert found["changelog_view_frontier_timestamp_seconds", "b"] == at.timestamp()
    assert ("changelog_view_rows", "b") not in found


def test_metrics_are_pushed(settings, caplog) -> None:
    heard: list[tuple[str, bytes]] = []

    class Gateway(Quiet, BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            heard.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

    with listening(Gateway) as address:
        run(settings(push_gateway=address), BADLY)
    ((path, body),) = heard
    assert path == "/metrics/job/rebuild-view"
    assert b'changelog_view_rows{view="a"} 7.0' in body
