"""`changelog erase` on the real servers: after it no file has a byte of the row.

And docs/erase.md: its commands.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from psycopg2.extensions import make_dsn
from rich.console import Console

from changelog.config import load_project
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, LockedError, RefutedError
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from changelog.kafka.cluster import Cluster
from changelog.stack.stack import Stack
from replay.archive.erase import ErasedFiles
from replay.broker.topics import read_frontier
from tests.support.captured_project import (
    REPOSITORY,
    CapturedProject,
    Ran,
    captured_database,
    rebuild_view,
)
from tests.support.page_lines import block_of, commands_of, plain
from tests.support.sql import execute
from tests.support.traces import cache_traces, database_traces, topic_traces, traces
from tests.support.wait import wait_until
from views.base.config import RebuildSettings
from views.base.progress import Stages
from views.erase import erase as erasing
from views.erase.erase import Erasure, NotErasedYetError
from views.erase.notes import Note, pending
from views.erase.topic import Cleaning, TopicLook, alter, look
from views.generations.history import PUBLISHED, GenerationHistory, HistoryRow
from views.generations.lock import erasing as erasing_lock
from views.generations.lock import following
from views.generations.place import place_for

pytestmark = [pytest.mark.services, pytest.mark.spark]
PAGE = REPOSITORY / "docs" / "erase.md"
SCHEMA = json.loads((REPOSITORY / "docs" / "erasure.schema.json").read_text("utf-8"))
Rebuild = Callable[..., Ran]
SINKS = "delta, postgres, cache, iceberg, search"
TABLES = """
CREATE TABLE people (email text PRIMARY KEY, name text, city text);
INSERT INTO people SELECT 'p' || n || '@example.com', 'name ' || n, 'city ' || n % 3
FROM generate_series(1, 60) n;
"""
PEOPLE = "SELECT email, name, city FROM people"
CITIES = "SELECT city, count(*) AS people FROM people GROUP BY city"
HISTORY = """
SELECT email, name, valid_from_lsn, valid_to_lsn, complete_from_lsn FROM people
"""


@dataclass(frozen=True)
class Case:
    """A captured project with a row that has marks in key and value."""

    project: CapturedProject
    stack: Stack
    prefix: str
    sink: str  # connection string of the database that serves views
    key: str
    name: str

    @property
    def topic(self) -> str:
        return f"{self.prefix}.people"

    @property
    def kafka(self) -> KafkaConnection:
        return KafkaConnection(brokers=self.stack.endpoints().brokers)

    @property
    def marks(self) -> list[str]:
        return [self.key, self.name]

    def where(self) -> dict[str, list[str]]:
        """Return by place the files that have a mark."""
        root = self.project.root
        places = {
            "log": topic_traces(self.stack, self.topic, self.marks),
            "locks": self._in_locks(),
            "archive": traces(root / "archive", self.marks),
            "warehouse": traces(self.project.warehouse, self.marks),
            "postgres": database_traces(self.sink, self.marks),
            "cache": cache_traces(
                str(self.stack.endpoints().cache), f"people_{self.prefix}", self.marks
            ),
            "search": traces(self.stack.directory / "search", self.marks),
        }
        return {place: files for place, files in places.items() if files}

    def _in_locks(self) -> list[str]:
        """Return the files of the log of locks, if it is there, that have a mark."""
        folders = (self.stack.directory / "kafka").rglob(f"{self.prefix}._locks-*")
        return [file for folder in folders for file in traces(folder, self.marks)]

    def pass_time(self) -> None:
        """Have the time that the log's settings promise pass at once, and its compaction happen.

        The settings are shorter for a moment, as if hours were seconds.
        """
        before = Cluster(self.kafka).settings([self.topic])[self.topic]
        names = ("min.compaction.lag.ms", "delete.retention.ms")
        alter(self.kafka, self.topic, dict.fromkeys(names, "1000"))
        (note,) = pending(str(self.project.warehouse))
        erasure = self.erasure()
        cleaning = Cleaning(self.kafka, note, may_close=lambda: True)
        assert cleaning.run(erasure._look().remaining, 120) == []
        alter(self.kafka, self.topic, {name: before[name] for name in names})

    def erasure(self) -> Erasure:
        project = load_project(self.project.root, needs=[])
        return Erasure(
            project,
            TableName("public", "people"),
            [{"email": self.key}],
            Stages(Console(quiet=True)),
        )

    def erase(self, *, wait_s: float = 0, target: Path | None = None) -> erasing.Erased:
        return self.erasure().run(wait_s=wait_s, target=target)


@pytest.fixture
def case(stack, tmp_path) -> Iterator[Case]:
    mark = uuid.uuid4().hex
    with captured_database(
        stack, tmp_path / "shop", TABLES, capture='topic."file.delete.delay.ms" = "1000"'
    ) as (project, prefix):
        sink = f"{prefix}_served"
        execute(stack.endpoints().postgres, f"CREATE DATABASE {sink}")
        dsn = make_dsn(stack.endpoints().postgres, dbname=sink)
        text = (project.root / "changelog.toml").read_text(encoding="utf-8")
        settings = [
            f"sinks.postgres.url = {json.dumps(dsn)}",
            'kafka.options = {"compression.type" = "none"}',  # marks are to be seen in its files
            "rebuild.keep = 5",
        ]
        (project.root / "changelog.toml").write_text("\n".join([*settings, text]), "utf-8")
        made = Case(project, stack, prefix, dsn, f"{mark}@example.com", f"name-{mark}")
        project.execute(f"INSERT INTO people VALUES ('{made.key}', '{made.name}', 'city 1')")
        project.capture()
        yield made
        execute(stack.endpoints().postgres, f"DROP DATABASE {sink} WITH (FORCE)")


def changelog(project: CapturedProject, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "changelog", *words, "--project", str(project.root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_a_row_leaves_log_and_archive(case) -> None:
    project = case.project
    project.command("archive")
    project.execute(f"UPDATE people SET city = 'city 2' WHERE email = '{case.key}'")
    project.capture()
    ran = changelog(project, "erase", "--table", "people", "--key", f"email={case.key}", "--yes")
    assert ran.returncode == ConfigurationError.exit_code
    assert "1 of 1 rows are still in public.people" in ran.stderr
    assert {*case.where()} == {"log", "archive"}, "what is looked for can be found"
    before = Cluster(case.kafka).own_settings(case.topic)
    project.execute(f"DELETE FROM people WHERE email = '{case.key}'")
    with pytest.raises(NotErasedYetError, match="still has 3 records of the keys, 2 of them with"):
        case.erase()
    assert Cluster(case.kafka).own_settings(case.topic) == before
    assert {*case.where()} == {"log"}
    case.pass_time()
    erased = case.erase()
    assert case.where() == {}
    assert Cluster(case.kafka).own_settings(case.topic) == before
    assert not [*pending(str(project.warehouse))]
    assert case.key not in erased.certificate.read_text("utf-8")
    project.execute("INSERT INTO people VALUES ('new', 'new', 'city 1')")
    project.capture()
    project.command("archive")
    project.command("verify")


def with_views(
    case: Case, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Rebuild:
    """Build views in all kinds of sinks, several generations of each, and all that is kept."""
    project, view = case.project, f"people_{case.prefix}"
    project.view(f"{view}.sql", f"-- key: email\n-- sinks: {SINKS}\n{PEOPLE}")
    project.view("cities.sql", f"-- key: city\n-- sinks: delta\n{CITIES}")
    project.view(
        "versions.sql",
        f"-- key: email, valid_from_lsn\n-- history: scd2\n-- sinks: delta, postgres\n{HISTORY}",
    )

    def rebuild(*words: str) -> Ran:
        ran = rebuild_view(capsys, monkeypatch, project, *words, "--json")
        assert ran.code == 0, ran.err
        return ran

    rebuild("--all")
    project.execute(f"UPDATE people SET city = 'city 2' WHERE email = '{case.key}'")
    project.capture()
    project.command("archive")
    rebuild(view, "--from", "checkpoint")
    rebuild(view, "cities", "--refresh")
    rebuild(view, "--stage")
    rebuild("versions")
    return rebuild


@pytest.mark.slow
def test_no_file_has_a_byte_of_the_row(case, capsys, monkeypatch, tmp_path) -> None:
    project, view = case.project, f"people_{case.prefix}"
    rebuild = with_views(case, capsys, monkeypatch)
    lsn = str(read_frontier(case.kafka, frontier_topic(case.prefix), case.prefix).frontier.lsn)
    everywhere = {"log", "archive", "warehouse", "postgres", "cache", "search"}
    assert {*case.where()} == everywhere
    kept = {path.split("/")[0] for path in case.where()["warehouse"]}
    assert {view, "versions", "_checkpoints", "_proved", "_iceberg"} <= kept
    project.execute(f"DELETE FROM people WHERE email = '{case.key}'")
    twin_of_a_careless_erasure(case, tmp_path)
    assert {*case.where()} == everywhere, "the judge finds each place that was left out"

    with pytest.raises(NotErasedYetError):
        case.erase()
    left = case.where()
    assert {*left} == {"log", "warehouse", "postgres"}, "versions wait for the log"
    assert {path.split("/")[0] for path in left["warehouse"]} <= {"versions", "_history"}
    case.pass_time()
    words = ("erase", "--table", "people", "--key", f"email={case.key}", "--yes", "--json")
    ran_apart = changelog(project, *words, "--certificate", str(tmp_path / "erased.json"))
    assert ran_apart.returncode == 0, ran_apart.stderr
    check_statistics(case, tmp_path)
    check_certificate(case, json.loads(ran_apart.stdout)["secret"], tmp_path)

    rows = sorted(project.query(PEOPLE))
    assert [tuple(row.values()) for row in project.delta(view)] == rows
    assert sorted(execute(case.sink, PEOPLE.replace("people", view))) == rows
    assert [tuple(row.values()) for row in project.delta("cities")] == sorted(project.query(CITIES))
    ran = rebuild(view, "--from", "archive", "--as-of", lsn)
    assert [result["verified"] for result in ran.results] == [True]
    assert [tuple(row.values()) for row in project.delta(view)] == rows
    project.execute("UPDATE people SET name = 'later' WHERE city = 'city 1'")
    project.capture()
    ran = rebuild("--all")
    assert [result["verified"] for result in ran.results] == [True, True, True]
    assert [tuple(row.values()) for row in project.delta(view)] == sorted(project.query(PEOPLE))
    assert case.where() == {}


def twin_of_a_careless_erasure(case: Case, tmp_path: Path) -> None:
    """Erase with each step left out, and each look back that would have noticed it."""
    clean = look

    def blind(*words: object, **more: object) -> TopicLook:
        return replace(clean(*words, **more), remaining=())  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(erasing, "look", blind)
        patched.setattr(erasing, "rebuilt", lambda specs, _: [])
        patched.setattr(Erasure, "_free", lambda *_: None)
        patched.setattr(
            erasing, "erase_archive", lambda *_, **__: ErasedFiles(files=0, written=0, records=0)
        )
        patched.setattr(erasing, "remaining", lambda *_: 0)
        patched.setattr(erasing, "remaining_of", lambda *_: [])
        patched.setattr(erasing, "remove_kept_states", lambda *_: [])
        patched.setattr(Note, "met", lambda note, _: note.views.update(_all_views(case)))
        case.erase(target=tmp_path / "careless.json")


def _all_views(case: Case) -> dict[str, int]:
    return dict.fromkeys((f"people_{case.prefix}", "cities", "versions"), 1)


def check_statistics(case: Case, tmp_path: Path) -> None:
    """Check that nothing is left but what a slot keeps of statistics, as the certificate says."""
    places = json.loads((tmp_path / "erased.json").read_text("utf-8"))["predicate"]["places"]
    rewritten = [place["looked_at"].get("postgres_statistics_rewritten") for place in places]
    if False in rewritten:
        ((file,),) = execute(case.sink, "SELECT pg_relation_filenode('pg_statistic')::text")
        assert case.where() in ({}, {"postgres": [file]})

        def is_gone() -> bool:
            case.project.capture()  # the slot goes on
            execute(case.sink, "CHECKPOINT", "VACUUM FULL pg_statistic")
            return not case.where()

        wait_until(is_gone, 120, "the slot lets go of the statistics")
    assert case.where() == {}


def check_certificate(case: Case, secret: str, tmp_path: Path) -> None:
    path = tmp_path / "erased.json"
    text = path.read_text("utf-8")
    statement = json.loads(text)
    Draft202012Validator(SCHEMA, format_checker=FormatChecker()).validate(statement)
    assert case.key not in text
    assert secret not in text
    of_page: dict[str, Callable[..., str]] = {}
    exec(block_of(PAGE, "python", "import hashlib").text, of_page)  # noqa: S102 - our own page
    digest = of_page["digest"](secret, "public", "people", ["email"], [case.key])
    assert statement["predicate"]["keys"] == [digest]
    kinds = [place["kind"] for place in statement["predicate"]["places"]]
    assert kinds == ["source", "topic", "view", "view", "view", "archive", "kept"]
    ran = changelog(case.project, "verify", str(path))
    assert ran.returncode == 0, ran.stderr
    assert "1 keys of public.people" in ran.stdout
    assert "topic" in ran.stdout
    altered = tmp_path / "altered.json"
    altered.write_text(text.replace("no row", "a row"), "utf-8")
    ran = changelog(case.project, "verify", str(altered))
    assert ran.returncode == RefutedError.exit_code


def test_what_is_not_covered_is_refused_before_anything_begins(case, capsys, monkeypatch) -> None:
    project = case.project
    project.view("sent.sql", f"-- key: email\n-- sinks: topic, delta\n{PEOPLE}")
    built = rebuild_view(capsys, monkeypatch, project, "sent")
    assert built.code == 0, built.err
    project.execute(f"DELETE FROM people WHERE email = '{case.key}'")
    settings = Cluster(case.kafka).own_settings(case.topic)
    words = ("erase", "--table", "people", "--key", f"email={case.key}")
    ran = changelog(project, *words)
    assert ran.returncode == 0, ran.stderr
    assert 'refused: view "sent" is in topic, which is not covered yet' in ran.stdout
    assert "out of reach: brokers" in ran.stdout
    ran = changelog(project, *words, "--yes")
    assert ran.returncode == ConfigurationError.exit_code
    assert 'nothing was begun: view "sent" is in topic' in ran.stderr
    assert Cluster(case.kafka).own_settings(case.topic) == settings
    assert not [*pending(str(project.warehouse))]


def test_settings_that_a_killed_run_has_altered_are_put_back_by_the_next(case) -> None:
    project = case.project
    before = Cluster(case.kafka).own_settings(case.topic)
    project.execute(f"DELETE FROM people WHERE email = '{case.key}'")
    script = (
        "import os, signal, sys\n"
        "from views.erase import topic\n"
        "from changelog.__main__ import main\n"
        "topic.is_there = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "main()\n"
    )
    words = ["erase", "--table", "people", "--key", f"email={case.key}", "--yes"]
    words += ["--wait", "100000", "--project", str(project.root)]
    killed = subprocess.run([sys.executable, "-c", script, *words], timeout=240, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert Cluster(case.kafka).own_settings(case.topic) != before
    ran = changelog(project, "erase", "--table", "people", "--key", "email=p1@example.com", "--yes")
    assert "rows are still in public.people" in ran.stderr
    assert Cluster(case.kafka).own_settings(case.topic) == before


def test_nobody_may_follow_a_view_meanwhile(case) -> None:
    project = load_project(case.project.root, needs=[])
    case.project.view("cities.sql", f"-- key: city\n-- sinks: delta\n{CITIES}")
    GenerationHistory(str(case.project.warehouse)).append(
        [HistoryRow(view="cities", generation=1, state=PUBLISHED, sinks=("delta",))]
    )
    case.project.execute(f"DELETE FROM people WHERE email = '{case.key}'")
    place = place_for(RebuildSettings(project=project))
    with (
        following(place, ["cities"]),
        pytest.raises(LockedError, match='view "cities" is followed'),
    ):
        case.erase()
    with erasing_lock(place), pytest.raises(LockedError, match="keys are being erased"):
        case.erase()


def test_the_pages_commands(case) -> None:
    project = case.project
    project.execute("CREATE TABLE customers (id int PRIMARY KEY)")
    project.execute("INSERT INTO customers SELECT generate_series(40, 44)")
    project.capture()
    project.execute(block_of(PAGE, "sql", "DELETE").text)
    commands = [plain(command) for command in commands_of(PAGE)]
    assert commands == ["changelog erase --table customers --key id=42"]
    ran = changelog(project, *shlex.split(commands[0])[1:])
    assert ran.returncode == 0, ran.stderr
    assert "topic: " in ran.stdout
    assert "nothing was done" in ran.stdout
