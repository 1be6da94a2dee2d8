"""A place to try things out: servers of its own, real flights, and capture when it is asked for.

The notebooks use it; so may anybody. Whoever finds its servers running leaves them so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from changelog.config import FILE_NAME, STACK_FOLDER, load_project
from changelog.contract.base.errors import ChangelogError, StackError
from changelog.source.connect.connect import connect
from changelog.stack.stack import Stack
from views.demo.flights import load_flights, write_changes

PLACE = "CHANGELOG_PLAYGROUND"
"""The variable that names the folder of a playground that is shared."""
FLIGHTS = 20_000
_SETTINGS = """\
[capture]
slot = "playground"
frontier_interval_ms = 200

[spark]
master = "local[2]"

[spark.settings]
"spark.sql.shuffle.partitions" = "2"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""
_COPY = """\
[postgres]
dsn = {dsn}

[kafka]
brokers = {brokers}

[registry]
url = {registry}

[capture]
slot = "playground_{name}"
topic_prefix = "{name}"
tables = {tables}
frontier_interval_ms = 200
"""
_CAPTURE_S = 300


@dataclass(frozen=True, slots=True)
class Playground:
    """Servers, flights and a project in one folder.

    Attributes:
        folder: the project's.
    """

    folder: Path
    _stack: Stack
    _is_ours: bool

    @classmethod
    def open(cls, folder: str | Path | None = None, *, flights: int = FLIGHTS) -> Self:
        """Start the servers unless they run, load the flights unless they are there, and capture.

        Args:
            folder: takes data, settings and views; the one that the environment variable
                CHANGELOG_PLAYGROUND names when left out, else `.playground` here.
            flights: so many are loaded.

        Raises:
            StackError: a server does not start.
            ChangelogError: capture failed.
        """
        root = Path(folder or os.environ.get(PLACE) or ".playground").resolve()
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)  # as root, PostgreSQL runs under another user
        (root / "views").mkdir(exist_ok=True)
        settings = root / FILE_NAME
        if not settings.exists():
            settings.write_text(_SETTINGS, encoding="utf-8")
        stack = Stack(root / STACK_FOLDER)
        is_ours = not _runs(stack)
        if is_ours:
            stack.up()
        playground = cls(root, stack, is_ours)
        load_flights(playground._dsn, rows=flights)
        playground.capture()
        return playground

    @property
    def _dsn(self) -> str:
        return load_project(self.folder).postgres

    @property
    def brokers(self) -> str:
        """Return the address of its Kafka."""
        return load_project(self.folder).kafka.brokers

    def write(self, transactions: int = 400, *, seed: int = 7) -> Counter[str]:
        """Commit transactions of a seeded writer; return the rows that it changed, by kind."""
        return write_changes(self._dsn, transactions=transactions, seed=seed)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement at the source, in a transaction of its own; return its rows, if any."""
        with closing(connect(self._dsn)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def copy(self, name: str, tables: Sequence[str]) -> Path:
        """Capture some tables a second time, to topics of their own; return the new project.

        Args:
            name: of the copy: its folder in this one, and the prefix of its topics.
            tables: which ones.

        Raises:
            ChangelogError: capture failed.
        """
        folder, project = self.folder / name, load_project(self.folder)
        folder.mkdir(exist_ok=True)
        settings = _COPY.format(
            name=name,
            dsn=json.dumps(project.postgres),
            brokers=json.dumps(project.kafka.brokers),
            registry=json.dumps(project.registry.url),
            tables=json.dumps([*tables]),
        )
        (folder / FILE_NAME).write_text(settings, encoding="utf-8")
        self.capture(folder)
        return folder

    def capture(self, folder: Path | None = None) -> str:
        """Bring the log up to now; return what capture said last.

        Args:
            folder: of the project, where it is not this one's own.
        """
        words = [sys.executable, "-m", "changelog", "capture", "--until", "now"]
        words += ["--project", str(folder or self.folder)]
        ran = subprocess.run(  # noqa: S603 - our own command
            words, capture_output=True, text=True, timeout=_CAPTURE_S, check=False
        )
        last_line = (ran.stderr.strip().splitlines() or [""])[-1]
        if ran.returncode != 0:
            raise ChangelogError(f"capture failed: {last_line}")
        return last_line

    def close(self) -> None:
        """Stop the servers, if this has started them; their data stays."""
        if self._is_ours:
            self._stack.down()


def _runs(stack: Stack) -> bool:
    try:
        return stack.endpoints() is not None
    except StackError:
        return False
