"""An archive of the log on real servers: killed, overtaken by compaction, read with Kafka gone.

And docs/archive.md: its commands.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg2.extensions import parse_dsn

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    LockedError,
    UnavailableError,
    VerdictError,
)
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from changelog.stack.base.ports import pick
from replay.archive import copy
from replay.archive.copy import CopySource, copy_news
from replay.archive.manifest import ArchiveError, Segment
from replay.archive.read import find_archived, open_archived, segments_of
from replay.archive.store import Archive, check
from replay.base.config import ReplaySettings
from replay.base.failures import translated
from replay.broker.topics import read_frontier
from replay.cut import cut
from replay.cut.asof import AsOf
from replay.spark.files import Files
from replay.verdict.verdict import Verdict, VerdictKind
from tests.support.builders import make_relation
from tests.support.captured_project import (
    REPOSITORY,
    CapturedProject,
    captured_database,
    rebuild_view,
)
from tests.support.cleaning import present, wait_cleaned
from tests.support.log_writer import CLEAN_AT_ONCE, LogWriter
from tests.support.matrix import first
from tests.support.page_lines import commands_of, plain
from tests.support.services import own_broker
from tests.support.stores import KINDS, emulated
from views.rebuild.plan import plan
from views.verify.records.archived import LogArchive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]
PAGE = REPOSITORY / "docs" / "archive.md"
THINGS = TableName("public", "things")
ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10, 2), placed timestamptz);
INSERT INTO orders SELECT n, n % 7, n * 0.25, timestamptz '2026-01-01Z' + n * interval '1 hour'
FROM generate_series(1, 300) n;
"""
SHOP = f"""
{ORDERS}
CREATE TABLE customers (id int PRIMARY KEY, name text);
INSERT INTO customers SELECT n, 'name ' || n FROM generate_series(0, 6) n;
CREATE TABLE marks (kind text, note text);
ALTER TABLE marks REPLICA IDENTITY FULL;
INSERT INTO marks VALUES ('a', 'x'), ('a', 'x'), ('b', NULL);
"""
ORDER_ROWS = """
SELECT o.id, c.name, o.amount, o.placed FROM orders o JOIN customers c ON c.id = o.customer
"""
MARK_ROWS = "SELECT kind, count(*) AS times, count(note) AS notes FROM marks GROUP BY kind"
VIEWS = {
    "orders_kept.sql": f"-- key: id\n{ORDER_ROWS}",
    "marks_kept.sql": f"-- key: kind\n{MARK_ROWS}",
}
Rows = dict[str, list[tuple[Any, ...]]]


def source_rows(project: CapturedProject) -> Rows:
    return {
        "orders_kept": sorted(project.query(ORDER_ROWS)),
        "marks_kept": sorted(project.query(MARK_ROWS)),
    }


def served_rows(project: CapturedProject) -> Rows:
    return {view: [tuple(row.values()) for row in project.delta(view)] for view in source_names()}


def source_names() -> list[str]:
    return [name.removesuffix(".sql") for name in VIEWS]


@pytest.mark.parametrize("looked_at", first(1, [[0, 2], [1, 3, 4]]), ids=str)
def test_views_are_rebuilt_as_of_any_lsn_with_kafka_and_registry_gone(
    stack, tmp_path, capsys, monkeypatch, looked_at
) -> None:
    """The first moment ends a segment, the third lies within one."""
    moments: list[tuple[str, Rows]] = []
    with (
        own_broker() as broker,
        captured_database(
            stack,
            tmp_path / "shop",
            SHOP,
            capture="allow_unkeyed = true",
            brokers=broker.url,
        ) as (project, prefix),
    ):
        for name, text in VIEWS.items():
            project.view(name, text)

        def note(statements: str = "") -> None:
            if statements:
                project.execute(statements)
            project.capture()
            kafka = KafkaConnection(brokers=broker.url)
            record = read_frontier(kafka, frontier_topic(prefix), prefix)
            moments.append((str(record.frontier.lsn), source_rows(project)))

        note()
        project.command("archive")
        note("UPDATE orders SET amount = 0 WHERE id < 50; DELETE FROM orders WHERE id > 280")
        note("UPDATE orders SET id = id + 1000 WHERE id BETWEEN 60 AND 70; TRUNCATE marks")
        note("ALTER TABLE orders ADD more text DEFAULT 'm'; INSERT INTO marks VALUES ('c', 'y')")
        project.command("archive")
        note("UPDATE customers SET name = 'other' WHERE id = 3; DELETE FROM marks")
        project.command("archive")
        project.command("archive", "--check")

        def refused(*_: object, **__: object) -> None:
            raise VerdictError("the state cannot be given exactly: it is past", hint="near")

        with monkeypatch.context() as patched:
            patched.setattr(plan, "find_past", refused)
            ran = rebuild_view(capsys, patched, project, "orders_kept", "--as-of", moments[1][0])
        assert ran.code == VerdictError.exit_code, ran.err
        assert f"the archive has it: --from archive --as-of {moments[1][0]}" in ran.err

        broker.stop()
        other = moved(project, tmp_path / "elsewhere")
        words = ("--all", "--from", "archive", "--json")
        ran = rebuild_view(capsys, monkeypatch, other, *words)
        assert ran.code == 0, ran.err
        assert "views are locked on this machine alone" in ran.err
        assert [result["verified"] for result in ran.results] == [True, True]
        assert served_rows(other) == moments[-1][1]
        for lsn, rows in (moments[number] for number in looked_at):
            ran = rebuild_view(capsys, monkeypatch, other, *words, "--as-of", lsn)
            assert ran.code == 0, ran.err
            assert {result["frontier"]["lsn"] for result in ran.results} == {lsn}
            assert served_rows(other) == rows, lsn

        spoil(Archive(str(project.root / "archive")))
        ran = rebuild_view(capsys, monkeypatch, other, *words)
        assert ran.code == ArchiveError.exit_code, ran.err
        assert "was altered: its digest is another" in ran.err
        assert served_rows(other) == moments[looked_at[-1]][1], "what served before serves"


def moved(project: CapturedProject, root: Path) -> CapturedProject:
    """Make a project elsewhere that has the archive alone: no registry, a warehouse of its own."""
    root.mkdir()
    text = (project.root / "changelog.toml").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("registry.url")]
    lines.insert(0, f"rebuild.archive = {json.dumps(str(project.root / 'archive'))}")
    lines.insert(0, f'registry.url = "http://127.0.0.1:{pick()}"')
    (root / "changelog.toml").write_text("\n".join(lines), encoding="utf-8")
    made = CapturedProject(root, project.dsn)
    for name, text in VIEWS.items():
        made.view(name, text)
    return made


def spoil(archive: Archive) -> None:
    """Change a byte of a file of the newest segment's orders."""
    *_, topic = (
        part for name, part in archive.segments()[0].topics.items() if name.endswith("orders")
    )
    path = Path(archive.place(topic.files[0].name))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture
def project(stack, tmp_path) -> Iterator[CapturedProject]:
    with captured_database(stack, tmp_path / "orders", ORDERS) as (made, _):
        yield made


def crash(project: CapturedProject, *options: str) -> int:
    words = [sys.executable, "-m", "tests.support.crashing_archive", *options, "--"]
    words += ["--project", str(project.root)]
    ran = subprocess.run(
        words, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode in {0, -signal.SIGKILL}, ran.stderr
    return ran.returncode


def archived(archive: Archive, topic: str) -> list[tuple[int, int, bytes, bytes | None]]:
    """Return every record of a topic that an archive has."""
    *_, _ = check(archive)
    rows = [
        row
        for segment in archive.segments()
        for file in segment.topics[topic].files
        for row in archive.table(file).to_pylist()
    ]
    return sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in rows)


def logged(kafka: KafkaConnection, topic: str) -> list[tuple[int, int, bytes, bytes | None]]:
    """Return every record that is on a topic."""
    return sorted(
        (m.partition() or 0, m.offset() or 0, m.key() or b"", m.value())
        for m in present(kafka, topic)
    )


CHANGES = "UPDATE orders SET amount = amount + 1 WHERE id <= 100; DELETE FROM orders WHERE id = 150"


@pytest.mark.parametrize("moment", first(1, ["manifest", "file:1", "committed"]))
def test_a_killed_run_is_gone_on_with_and_no_record_is_there_twice(
    project, kafka, prefix, moment
) -> None:
    (topic,) = read_topics(project, kafka)
    archive = Archive(str(project.root / "archive"))
    project.command("archive")
    project.execute(CHANGES)
    project.capture()
    assert crash(project, "--kill", moment) == -signal.SIGKILL
    project.execute("INSERT INTO orders SELECT 1000 + n FROM generate_series(1, 5) n")
    project.capture()
    project.command("archive")
    assert archived(archive, topic) == logged(kafka, topic)
    project.execute("INSERT INTO orders VALUES (2000)")
    project.capture()
    project.command("archive")
    assert archived(archive, topic) == logged(kafka, topic)
    folders = [path.name for path in Path(archive.place("segments")).iterdir()]
    named = [segment.frontiers.name.split("/")[1] for segment in archive.segments()]
    assert sorted(folders) == sorted(named), "nothing is left of the killed run"


def read_topics(project: CapturedProject, kafka: KafkaConnection) -> list[str]:
    prefix = parse_dsn(project.dsn)["dbname"]
    record = read_frontier(kafka, frontier_topic(prefix), prefix)
    return [*record.frontier.tables]


def test_twin_a_run_that_believes_the_files_of_a_killed_one_is_found(project) -> None:
    project.command("archive")
    project.execute(CHANGES)
    project.capture()
    assert crash(project, "--kill", "manifest") == -signal.SIGKILL
    project.execute("INSERT INTO orders VALUES (2000)")
    project.capture()
    assert crash(project, "--defect", "believe") == 0
    with pytest.raises(ArchiveError, match="does not begin where the segment before ended"):
        list(check(Archive(str(project.root / "archive"))))


def test_of_two_that_archive_at_once_one_counts(project, monkeypatch, run_command) -> None:
    commit, done = Archive.commit, list[int]()

    def overtaken(self: Archive, segment: Segment) -> None:
        if not done:
            done.append(1)
            project.command("archive")
        commit(self, segment)

    monkeypatch.setattr(Archive, "commit", overtaken)
    code, _, err = run_command(["archive", "--project", str(project.root), "--json"])
    assert code == LockedError.exit_code, err
    assert "another process archives to" in err
    *_, (_, counts) = check(Archive(str(project.root / "archive")))
    assert counts.segments == 1


# What the cleaner takes soon, while tombstones stay long enough for a copy.
CLEANED_SOON = {
    **CLEAN_AT_ONCE,
    "min.compaction.lag.ms": "4000",
    "max.compaction.lag.ms": "5000",
    "delete.retention.ms": "600000",
}


class Overtaken:
    """A log whose records are cleaned away soon, and its archive."""

    def __init__(self, spark: SparkSession, kafka, registry, prefix: str, folder: Path) -> None:
        relation = make_relation()
        self.spark, self.kafka, self.registry = spark, kafka, registry
        self.log = LogWriter(kafka, registry, relation, prefix=prefix, settings=CLEANED_SOON)
        self.archive = Archive(str(folder / "archive"))
        self.source = CopySource(
            kafka=kafka,
            registry=registry,
            frontier_topic=self.log.frontier_topic,
            slot="slot",
            settings=ReplaySettings(clock_allowance_ms=0),
        )

    def copy(self) -> copy.Copied:
        return copy_news(self.archive, self.source)

    def keeps_all(self) -> None:
        """Stop the cleaner: no further record is removed."""
        self.log.alter(max_compaction_lag_ms=2**63 - 1)
        self.log.alter(min_compaction_lag_ms=6 * 3_600_000)

    def is_cleaned(self) -> FrontierRecord:
        """Write a version that the cleaner then takes; returns the frontier at which it was."""
        version = self.log.put((b"1", b"between"))
        inner = self.log.freeze()
        self.log.put((b"1", b"last"))
        self.log.flush()
        (place,) = (
            (m.partition() or 0, m.offset() or 0)
            for m in present(self.kafka, self.log.topic)
            if ("position", version.to_bytes()) in (m.headers() or [])
        )
        numbers = iter(range(1000, 10_000))

        def stir() -> None:
            for _ in range(4):  # to both partitions
                self.log.put((b"%d" % next(numbers), b"stir" * 100))
            self.log.flush()

        wait_cleaned(self.kafka, stir, {self.log.topic: [place]})
        return inner

    def rows(self, record: FrontierRecord | None = None) -> dict[int, str]:
        """Return the rows that the archive gives, without those that stirred."""
        as_of = None
        if record is not None:
            as_of = AsOf(str(record.frontier.lsn), lsn=record.frontier.lsn)
        found = find_archived(self.archive, segments_of(self.archive), as_of, [THINGS])
        replay = open_archived(self.spark, found, found.schemas_of(found.cut.topics))
        with translated():
            rows = replay.states[THINGS].frame.where("id < 1000").collect()
        return {row.id: row.name for row in rows}


@pytest.fixture
def overtaken(spark, kafka, registry, prefix, tmp_path) -> Overtaken:
    return Overtaken(spark, kafka, registry, prefix, tmp_path)


def test_where_compaction_was_quicker_it_is_said_and_states_between_are_refused(overtaken) -> None:
    log = overtaken.log
    log.put((b"1", b"first"))
    log.put((b"2", b"stays"))
    first = log.freeze()
    overtaken.copy().require_whole()
    inner = overtaken.is_cleaned()
    log.delete_key(b"2")
    last = log.freeze()
    copied = overtaken.copy()
    with pytest.raises(VerdictError) as error:
        copied.require_whole()
    assert f'topic "{log.topic}": behind LSN {first.frontier.lsn}' in str(error.value)
    assert "min.compaction.lag.ms (4000)" in str(error.value)
    assert "min_compaction_lag_ms" in error.value.hint
    assert overtaken.rows() == {1: "last"}
    assert overtaken.rows(first) == {1: "first", 2: "stays"}
    with pytest.raises(VerdictError) as error:
        overtaken.rows(inner)
    assert str(first.frontier.lsn) in error.value.hint
    assert str(last.frontier.lsn) in error.value.hint
    overtaken.keeps_all()
    log.put((b"3", b"new"))
    log.freeze()
    overtaken.copy().require_whole()
    assert overtaken.rows() == {1: "last", 3: "new"}, "it goes on from the new base"


def test_twin_without_the_verdict_a_state_between_is_wrong(overtaken, monkeypatch) -> None:
    log = overtaken.log
    log.put((b"1", b"first"))
    log.freeze()
    overtaken.copy()
    inner = overtaken.is_cleaned()
    log.freeze()

    def believed(*arguments: Any, **more: Any) -> Any:
        judged = cut.make_cut(*arguments, **more)
        fine = Verdict(VerdictKind.EXACT, None, ())
        return replace(judged, verdict=replace(fine, topics=dict.fromkeys(judged.states, fine)))

    monkeypatch.setattr(copy, "make_cut", believed)
    monkeypatch.setattr(copy, "recheck", lambda *_: 0)
    overtaken.copy().require_whole()
    assert overtaken.rows(inner) == {1: "first"}, "it was 'between'"


def test_records_sent_again_and_a_topic_made_anew(overtaken) -> None:
    log = overtaken.log
    overtaken.keeps_all()
    old = log.put((b"1", b"old"))
    log.put((b"1", b"new"))
    log.freeze()
    overtaken.copy().require_whole()
    key, value = log.codec.encode_key((b"1",)), log.codec.encode_value((b"1", b"old"))
    log.put_raw(key, value, headers=[("position", old.to_bytes()), ("op", b"c")])
    log.freeze()
    overtaken.copy().require_whole()
    assert overtaken.rows() == {1: "new"}
    log.delete()
    log.create(log.topic, 3, CLEANED_SOON)
    log.put((b"5", b"anew"))
    log.freeze()
    with pytest.raises(VerdictError, match="it is another topic now"):
        overtaken.copy().require_whole()
    assert overtaken.rows() == {5: "anew"}


def archive_past_a_killed_run(project: CapturedProject) -> list[tuple[Any, ...]]:
    """Archive three times, and once more by a run that is killed; returns the rows at first."""
    project.command("archive")
    rows = project.query("SELECT id, amount FROM orders ORDER BY id")
    project.execute(CHANGES)
    project.capture()
    assert crash(project, "--kill", "manifest") == -signal.SIGKILL
    for statement in (
        "INSERT INTO orders SELECT 1000 + n FROM generate_series(1, 5) n",
        "INSERT INTO orders VALUES (2000)",
    ):
        project.execute(statement)
        project.capture()
        project.command("archive")
    project.command("archive", "--check")
    return rows


@pytest.mark.parametrize("kind", first(1, KINDS))
def test_an_archive_in_a_store(kind, project, kafka, tmp_path, capsys, monkeypatch) -> None:
    """Written, killed, read by views and by the verifier, cut short, away."""
    (topic,) = read_topics(project, kafka)
    project.view("orders_kept.sql", "-- key: id\nSELECT id, amount FROM orders\n")
    with emulated(kind, tmp_path) as store:
        for name, text in store.environ.items():
            monkeypatch.setenv(name, text)
        place = f"{store.base}/log"
        settings = project.root / "changelog.toml"
        settings.write_text(f'rebuild.archive = "{place}"\n{settings.read_text()}')
        first_rows = archive_past_a_killed_run(project)
        archive = Archive(place)
        segments = archive.segments()
        for name in ("segments/README.txt", "manifests/00000001.json.old", "manifests/.notes"):
            Files().replace(archive.place(name), b"somebody's own")
        project.command("archive")
        if store.nowhere:
            with pytest.raises(UnavailableError, match="read: there is no such bucket"):
                Archive(f"{store.nowhere}/log").segments()
        assert archived(archive, topic) == logged(kafka, topic)
        last = segments[-1]
        found = LogArchive(place).tables(last.frontier, topic, [0] * len(last.topics[topic].ends))
        assert sum(table.num_rows for _, table in found) == len(logged(kafka, topic))
        folders = {name.split("/")[2] for name in store.names() if "/segments/0" in name}
        assert folders == {segment.frontiers.name.split("/")[1] for segment in segments}
        with pytest.raises(LockedError):
            archive.commit(last)

        words = ("orders_kept", "--from", "archive", "--json")
        ran = rebuild_view(capsys, monkeypatch, project, *words)
        assert (ran.code, ran.results[0]["verified"]) == (0, True), ran.err
        assert kept_rows(project) == project.query("SELECT id, amount FROM orders ORDER BY id")
        old = str(segments[0].frontier.lsn)
        ran = rebuild_view(capsys, monkeypatch, project, *words, "--as-of", old)
        assert (ran.code, ran.results[0]["verified"]) == (0, True), ran.err
        assert kept_rows(project) == first_rows

        cut = archive.place(segments[0].topics[topic].files[0].name)
        whole = Files().read(cut)
        Files().replace(cut, whole[:-10])
        ran = rebuild_view(capsys, monkeypatch, project, *words)
        assert ran.code == ArchiveError.exit_code, ran.err
        assert "was altered: its digest is another" in ran.err
        Files().remove_file(cut)
        ran = rebuild_view(capsys, monkeypatch, project, *words)
        assert ran.code == ArchiveError.exit_code, ran.err
        assert "the archive has lost" in ran.err
        assert kept_rows(project) == first_rows, "what served before serves"

        store.stop()
        ran = rebuild_view(capsys, monkeypatch, project, *words)
        assert ran.code == UnavailableError.exit_code, ran.err
        assert f"the store of the archive {place} does not answer: " in ran.err


def kept_rows(project: CapturedProject) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in project.delta("orders_kept")]


def test_the_commands_of_the_page(project, capsys, monkeypatch) -> None:
    project.view("orders_kept.sql", "-- key: id\nSELECT id, amount FROM orders\n")
    for command in commands_of(PAGE):
        program, *words = shlex.split(plain(command))
        if program == "changelog":
            project.command(*words)
        else:
            ran = rebuild_view(capsys, monkeypatch, project, *words)
            assert ran.code == 0, ran.err
    assert kept_rows(project) == project.query("SELECT id, amount FROM orders ORDER BY id")
