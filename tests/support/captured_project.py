"""A project on the running stack whose database is captured on demand."""

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from deltalake import DeltaTable
from psycopg2.extensions import make_dsn

from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack
from tests.support.sql import execute
from views import cli
from views.generations.history import GenerationHistory

REPOSITORY = Path(__file__).parents[2]
# One session serves hundreds of tests: with one compiler Java keeps 48 MB of code, and ends when
# these are full.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""For a JVM that compiles and loads more than it runs.

With one compiler a cold rebuild takes 20 s in place of 25. Classes that nobody verifies spare the
first write of a session 6 of 32 s of CPU.
"""


@dataclass(frozen=True)
class CapturedProject:
    """The project's folder and what a test does with it."""

    root: Path
    dsn: str
    place: Path | None = None
    """Of the warehouse, where it is not in the folder."""

    @property
    def warehouse(self) -> Path:
        return self.place or self.root / "warehouse"

    def execute(self, text: str) -> None:
        execute(self.dsn, text)

    def query(self, text: str) -> list[tuple]:
        return execute(self.dsn, text)

    def capture(self) -> None:
        """Bring the log up to now."""
        self.command("capture", "--until", "now")

    def command(self, *asked: str) -> None:
        words = [sys.executable, "-m", "changelog", *asked, "--project", str(self.root)]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, ran.stderr

    def crash(
        self, view: str, *options: str, also: Sequence[str] = ()
    ) -> subprocess.CompletedProcess:
        """Rebuild by a process that may be killed or have a defect: see `crashing_rebuild`."""
        words = [
            sys.executable,
            "-m",
            "tests.support.crashing_rebuild",
            *options,
            "--",
            view,
            *also,
        ]
        words += ["--project", str(self.root)]
        return subprocess.run(
            words, cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=False
        )

    def view(self, name: str, text: str) -> None:
        path = self.root / "views" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def history(self, view: str) -> list[tuple[int, str]]:
        """Return generation and state of each row, oldest first."""
        rows = GenerationHistory(str(self.warehouse)).rows([view])
        return [(row.generation, row.state) for row in rows]

    def delta(self, view: str) -> list[dict]:
        """Return what a reader at the stable path sees."""
        rows = DeltaTable(str(self.warehouse / view)).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: next(iter(row.values())))


@contextmanager
def captured_database(
    stack: Stack,
    root: Path,
    statements: str,
    *,
    capture: str = "",
    brokers: str = "",
    captures: bool = True,
) -> Iterator[tuple[CapturedProject, str]]:
    """Return a captured database with a project at `root`, and the prefix of its topics.

    The cache and the search server are those of other tests too: a view of a test that says what
    they hold has a name of its own.

    `capture` is more text of the section of that name, `brokers` another broker than the stack's.
    Without `captures` the first capture is the test's.
    """
    endpoints = stack.endpoints()
    if brokers:
        endpoints = replace(endpoints, brokers=brokers)
    prefix = f"r{uuid.uuid4().hex[:10]}"
    execute(endpoints.postgres, f"CREATE DATABASE {prefix}")
    dsn = make_dsn(endpoints.postgres, dbname=prefix)
    project = CapturedProject(root, dsn)
    write_settings(project.root, endpoints, dsn, prefix, capture=capture)
    project.execute(statements)
    if captures:
        project.capture()
    yield project, prefix
    execute(
        endpoints.postgres,
        f"SELECT pg_drop_replication_slot('{prefix}')",
        f"DROP DATABASE {prefix} WITH (FORCE)",
    )


def write_settings(
    root: Path, endpoints: Endpoints, dsn: str, prefix: str, *, capture: str = ""
) -> None:
    """Write a project's `changelog.toml` for a database on the stack."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "changelog.toml").write_text(
        f"""
postgres.dsn = {json.dumps(dsn)}
kafka.brokers = {json.dumps(endpoints.brokers)}
registry.url = {json.dumps(endpoints.schema_registry)}
sinks.search.url = {json.dumps(endpoints.search)}
sinks.cache.url = {json.dumps(endpoints.cache)}
spark.master = "local[2]"
[capture]
slot = "{prefix}"
topic_prefix = "{prefix}"
frontier_interval_ms = 100
snapshot_workers = 1
{capture}
[spark.settings]
"spark.driver.extraJavaOptions" = "{SHORT_LIVED}"
""",
        encoding="utf-8",
    )


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def results(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]


def rebuild_view(capsys, monkeypatch, project: CapturedProject, *arguments: str) -> Ran:
    """Run the command in this process, so that all tests share one Spark session."""
    words = ["rebuild-view", "--project", str(project.root), *arguments]
    return run_here(capsys, monkeypatch, words)


def run_here(capsys, monkeypatch, words: Sequence[str]) -> Ran:
    """Run the words of a `rebuild-view` in this process."""
    monkeypatch.setattr(sys, "argv", [*words])
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    capsys.readouterr()
    code = 0
    try:
        cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    said = capsys.readouterr()
    return Ran(code, said.out, said.err)
