"""After the storm: log, views and source are compared with each other, row by row."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from changelog.stack.base.state import Endpoints
from tests.soak.captures import command
from tests.soak.child import Child
from tests.soak.fold import Log
from tests.soak.journal import Journal
from tests.soak.project import TABLE_VIEWS, add_view
from tests.soak.served import TOTALS, Judge, compared
from tests.soak.source import connect, touch

DEADLINE_S = 600.0


@dataclass(frozen=True)
class Ending:
    """What the last look needs."""

    project: Path
    prefix: str
    endpoints: Endpoints
    journal: Journal
    judge: Judge
    defect: str | None = None
    followed: bool = True

    def check(self):
        """Catch up, rebuild all, compare; return how many tables and rows there were."""
        touch(self.endpoints.postgres, followed=self.followed)
        capture = command(f"{self.project}-least", defect=self.defect)
        self._run("last capture", *capture, "--until", "now")
        tables = self._tables()
        later = [table for table in tables if table not in TABLE_VIEWS]
        for table in later:
            add_view(self.project, table)
        rebuild = ["-m", "tests.support.crashing_rebuild", "--", "--project", str(self.project)]
        self._run("last rebuild", *rebuild, "--all", "--verify", "full")
        self.judge.look(extra=later)
        rows = self._compare(tables)
        for table in TABLE_VIEWS:
            target = ["--target", f"delta:{self.project}/warehouse/{table}", "--settle", "0"]
            words = ["verify", table, "--source", self.endpoints.postgres, *target]
            self._run(f"verify of {table} in Delta", "-m", "changelog", *words)
        beside = self._begin("capture beside verify", *capture)
        try:
            words = ["--timeout", "120", "--project", f"{self.project}-least"]
            self._run("verify", "-m", "changelog", "verify", *words)
        finally:
            beside.kill()
        return {"tables": len(tables), "rows": rows}

    def _begin(self, name, *words):
        return Child(self.project / "logs" / f"{name.replace(' ', '-')}.txt", *words)

    def _run(self, name, *words):
        child = self._begin(name, *words)
        try:
            child.ends(DEADLINE_S)
        finally:
            child.kill()
        self.journal.say(f"{name}: {child.code}")
        if child.code != 0:
            self.journal.violation(
                f"{name} ended with {child.code}: {child.last_lines()}: {child.log}"
            )

    def _compare(self, tables):
        """Compare the fold of the log, and each view, with the source; return its rows' number."""
        log = Log(self.endpoints.brokers, self.endpoints.schema_registry, self.prefix)
        frontier = log.newest_frontier()
        topics = {name[1]: topic for topic, name in frontier["tables"].items()}
        count = 0
        for table in tables:
            wanted = self._source(table)
            count += len(wanted)
            if table not in topics:
                self.journal.violation(f"the last frontier does not speak of {table}")
                continue
            served = self.judge.served(table)
            for what, found in (
                (f"the fold of {table}", log.rows(frontier, topics[table])),
                (f"the view {table}", served.rows if served else []),
            ):
                if wrong := compared(wanted, found):
                    self.judge.wrong.append(f"{what} at the end: {wrong}")
        if self.judge.served(TOTALS) is None:
            self.journal.violation("the view totals was never published")
        return count

    def _tables(self):
        with closing(connect(self.endpoints.postgres)) as source, source.cursor() as cursor:
            cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
            return [name for (name,) in cursor.fetchall()]

    def _source(self, table):
        with closing(connect(self.endpoints.postgres)) as source, source.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            names = [each.name for each in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
