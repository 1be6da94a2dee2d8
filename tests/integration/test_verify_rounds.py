"""`changelog verify --every`: verdicts of rounds, metrics, the webhook, moments of differences."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg2.extensions import parse_dsn

from changelog.compare.address import parse_target
from changelog.compare.command import open_target
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.compare.rounds import Standing
from changelog.contract.base.lsn import Lsn
from changelog.stack.base.ports import pick
from tests.support.copies import KINDS, Source, every_row
from tests.support.http_listener import Quiet, listening
from tests.support.proxy import Proxy
from tests.support.scrape import samples
from tests.support.wait import wait_until

FILL = """
CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric);
INSERT INTO orders SELECT n, 'customer ' || n % 7, n * 1.25 FROM generate_series(-500, 2500) AS n;
CREATE TABLE copy AS SELECT * FROM orders;
"""


class Watching:
    """A running `changelog verify --every 1s --json`, and the lines that it has printed."""

    def __init__(self, process):
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def next(self, condition, what):
        """Wait for a line of a round that began after this call and meets a condition."""
        before = len(self.lines) + 1  # a round that goes on may have looked before
        return wait_until(lambda: next(filter(condition, self.lines[before:]), None), 60.0, what)

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        code = self.process.wait(30)
        self._reader.join()
        return code, self.process.stderr.read()


@contextmanager
def watching(dsn, target, *more):
    words = [sys.executable, "-m", "changelog", "verify", "orders", "--source", dsn]
    words += ["--target", target, "--every", "1s", "--settle", "0", "--json", *more]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, encoding="utf-8") as process:
        try:
            yield Watching(process)
        finally:
            process.kill()


class Hook:
    """A webhook that answers as it is told, and keeps what it was sent."""

    def __init__(self):
        self.bodies: list[dict[str, Any]] = []
        self.tries, self.status, self.address = 0, 200, ""
        hook = self

        class Handler(Quiet, BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                hook.tries += 1
                if hook.status == 200:
                    hook.bodies.append(json.loads(body))
                self.send_response(hook.status)
                self.end_headers()

        self.handler = Handler

    def next(self, count):
        wait_until(lambda: len(self.bodies) >= count, 60.0, f"{count} bodies came")
        return self.bodies[count - 1]


@pytest.fixture
def hook():
    made = Hook()
    with listening(made.handler) as address:
        made.address = address
        yield made


@pytest.fixture
def target(dsn, execute):
    execute(FILL)
    return f"postgres:{dsn} dbname={parse_dsn(dsn)['dbname']}/copy"


def now(execute):
    return Lsn.parse(execute("SELECT pg_current_wal_lsn()::text")[0][0])


def lsn(moment):
    return Lsn.parse(moment["lsn"])


def equal(line):
    return line.get("verified") is True and not line["since"]


def differs(line):
    return bool(line.get("since"))


def test_a_difference_that_comes_and_goes_is_told_with_its_moments(dsn, target, execute, hook):
    port = pick()
    with watching(
        dsn, target, "--webhook", f"{hook.address}/s3cret", "--metrics-port", str(port)
    ) as watch:
        assert watch.next(equal, "a round is equal")["rows_source"] == 3001
        before = now(execute)
        execute("UPDATE copy SET amount = amount - 0.01 WHERE id = 42")
        after = now(execute)
        line = watch.next(differs, "a round differs")
        (since,) = line["since"]
        assert since["key"] == {"id": "42"}
        assert lsn(since["equal"]) <= before < after <= lsn(since["differs"])

        told = hook.next(1)
        assert (told["status"], told["before"], told["exit_code"]) == ("differs", "equal", 3)
        assert lsn(told["targets"][0]["differs"]) == lsn(since["differs"])
        assert told["targets"][0]["mismatches"] == 1

        execute("DELETE FROM copy WHERE id = 7")
        line = watch.next(lambda line: len(line.get("since", ())) == 2, "another key differs")
        by_key = {one["key"]["id"]: one for one in line["since"]}
        assert by_key["42"] == since, "the moments of a difference stay as they were"
        assert lsn(by_key["7"]["equal"]) >= lsn(since["differs"])

        def metrics():
            return samples(httpx.get(f"http://127.0.0.1:{port}/metrics").text)

        label = (("target", line["name"]),)
        wait_until(lambda: metrics()["changelog_verify_mismatches", label] == 2, 60.0, "metrics")
        numbers = metrics()
        assert numbers["changelog_verify_verified", label] == 0
        assert numbers["changelog_verify_differs_lsn", label] == lsn(since["differs"])
        assert numbers["changelog_verify_differs_after_lsn", label] == lsn(since["equal"])
        assert numbers["changelog_verify_source_rows", label] == 3001
        assert numbers["changelog_verify_rounds_total", (("outcome", "equal"),)] >= 1
        assert numbers["changelog_verify_rounds_total", (("outcome", "failed"),)] == 0

        execute("DELETE FROM copy; INSERT INTO copy SELECT * FROM orders")
        watch.next(equal, "the copy is right again")
        assert hook.next(2)["status"] == "equal"
        assert hook.bodies[1]["before"] == "differs"
        numbers = metrics()
        assert numbers["changelog_verify_verified", label] == 1
        assert ("changelog_verify_differs_lsn", label) not in numbers
        code, errors = watch.stop()
    assert code == 0, errors
    assert "s3cret" not in errors
    assert len(hook.bodies) == 2, "rounds that say the same are not told"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_the_last_verdict(dsn, target, execute, number):
    execute("DELETE FROM copy WHERE id = 7")
    with watching(dsn, target) as watch:
        line = watch.next(differs, "a round differs")
        assert line["since"][0]["equal"] is None, "nobody knows when it was equal"
        code, errors = watch.stop(number)
    assert code == 3, errors
    assert "not compared before, differs at" in errors


def test_a_side_that_is_away_is_told_and_tried_again(dsn, target, execute, hook):
    parts = parse_dsn(dsn)
    with (
        Proxy(pick(), int(parts["port"])) as proxy,
        watching(
            dsn, f"postgres:{dsn} port={proxy.port} dbname={parts['dbname']}/copy",
            "--webhook", hook.address,
        ) as watch,
    ):  # fmt: skip
        watch.next(equal, "a round is equal")
        proxy.refuse()
        assert watch.next(lambda line: "error" in line, "a round fails")["exit_code"] == 1
        told = hook.next(1)
        assert (told["status"], told["exit_code"]) == ("failed", 1)
        proxy.heal()
        watch.next(equal, "a round is equal again")
        told = hook.next(2)
        assert (told["status"], told["before"]) == ("equal", "failed")
        assert watch.stop()[0] == 0


def test_a_column_that_the_copy_loses_makes_no_difference_equal(dsn, target, execute):
    execute("UPDATE copy SET amount = amount + 1 WHERE id = 2")
    with watching(dsn, target) as watch:
        watch.next(lambda line: line.get("verified") is False, "a round differs")
        execute("ALTER TABLE copy DROP COLUMN amount")
        lost = watch.next(lambda line: "not compared any more" in line.get("error", ""), "the loss")
        assert lost["exit_code"] == 1
        assert not any(map(equal, watch.lines))
        assert watch.stop()[0] == 1


def test_a_webhook_that_is_away_is_said_and_told_later(dsn, target, execute, hook):
    hook.status = 503
    execute("DELETE FROM copy WHERE id = 7")
    port = pick()
    with watching(
        dsn, target, "--webhook", f"{hook.address}/s3cret", "--metrics-port", str(port)
    ) as watch:

        def lost():
            page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
            return samples(page)["changelog_verify_webhook_failures_total", ()]

        watch.next(differs, "a round differs")
        wait_until(lambda: lost() >= 1, 60.0, "the webhook has not taken it")
        assert hook.tries >= 4
        hook.status = 200
        assert hook.next(1)["status"] == "differs"
        code, errors = watch.stop()
    assert code == 3
    assert 'the webhook was not told of the verdict "differs": it answered 503' in errors
    assert "s3cret" not in errors


def standing_of(dsn, target, standing, turn, sample):
    relation = ComparedRelation(table="orders")
    with (
        closing(PostgresSide(dsn, relation, of="source")) as source,
        closing(open_target(parse_target(target), "orders", Path())) as copy,
    ):
        report = compare(source, copy, CompareRequest(settle_s=0.0, sample=sample, turn=turn))
    standing.judge(report)
    return report


def test_rounds_of_a_sample_take_all_keys_in_turn(dsn, target, execute):
    execute("DELETE FROM copy WHERE id IN (7, 2000)")
    standing, rows, reports = Standing(), 0, []
    for turn in range(100, 111):
        reports.append(standing_of(dsn, target, standing, turn, 0.1))
        rows += reports[-1].source_rows
    assert rows >= 3001
    assert {key[0] for key in standing.since} == {"7", "2000"}
    assert sum(not report.mismatches for report in reports[1:]) >= 8, "others were equal meanwhile"
    execute("INSERT INTO copy SELECT * FROM orders WHERE id = 7")
    for turn in range(111, 122):
        standing_of(dsn, target, standing, turn, 0.1)
    assert {key[0] for key in standing.since} == {"2000"}


def moments_of_a_write_inside_a_round(dsn, target, execute, monkeypatch):
    """Make a row differ once a round has read it; return its moments, and the LSN of before."""
    standing, moments, read = Standing(), list[Lsn](), PostgresSide.digests

    def write_then(side):
        digests = read(side)
        if not moments and side.place.startswith("copy of"):
            moments.append(now(execute))
            execute("UPDATE copy SET amount = amount - 0.01 WHERE id = 42")
        return digests

    monkeypatch.setattr(PostgresSide, "digests", write_then)
    assert standing_of(dsn, target, standing, 0, 1.0).mismatches == 0
    assert not standing.since
    assert standing_of(dsn, target, standing, 1, 1.0).mismatches == 1
    (since,) = standing.since.values()
    return since, moments[0]


def test_a_write_inside_a_round_lies_between_the_moments_of_its_difference(
    dsn, target, execute, monkeypatch
):
    since, before = moments_of_a_write_inside_a_round(dsn, target, execute, monkeypatch)
    assert since.equal.lsn <= before < since.differs.lsn


def test_twin_a_round_that_counts_from_its_end_says_equal_of_a_row_that_differed(
    dsn, target, execute, monkeypatch
):
    judge = Standing.judge
    monkeypatch.setattr(
        Standing, "judge", lambda self, report: judge(self, replace(report, began=report.ended))
    )
    since, before = moments_of_a_write_inside_a_round(dsn, target, execute, monkeypatch)
    assert since.equal.lsn > before


@pytest.mark.parametrize("kind", [*KINDS])
@pytest.mark.parametrize("key", ["id", "t,u"])
def test_a_keys_rank_is_that_of_its_bucket_on_each_side(dsn, tmp_path, kind, key):
    source, rows = Source(dsn), every_row()
    source.fill(rows)
    copy = KINDS[kind](dsn, tmp_path)
    copy.fill(rows)
    with (
        closing(PostgresSide(dsn, ComparedRelation(table="every"), of="source")) as own,
        closing(open_target(parse_target(copy.target), "every", tmp_path)) as other,
    ):
        plan = compare(own, other, CompareRequest(settle_s=0.0, key=key.split(","))).plan
        assert plan.buckets.by_value is (key == "id")
        for side in (own, other):
            for bucket in side.digests():
                for row, _ in side.rows([bucket]):
                    assert plan.rank_of(row) == plan.buckets.rank(bucket)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--every", "1w"], "--every '1w' is not a period"),
        (["--webhook", "http://h"], "--webhook only works with --every"),
        (["--metrics-port", "1"], "--metrics-port only works with --every"),
        (["--every", "1s", "--webhook", "h/x"], "--webhook is no address"),
        (["--every", "1s", "--columns", "nothing"], 'the source has no column "nothing"'),
    ],
)
def test_bad_usage_ends_at_once(dsn, target, run_command, words, part):
    ended, _, errors = run_command(
        ["verify", "orders", "--source", dsn, "--target", target, *words]
    )
    assert (ended, part in errors) == (2, True), errors
