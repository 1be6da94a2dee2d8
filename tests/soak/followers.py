"""Followers of the storm: one life after another over views in a table that readers see.

Each look reads a view's rows and the LSN that it says they are of in one transaction, and compares
them with what the source held at that LSN.
"""

import json
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal

import psycopg2
from psycopg2.extensions import make_dsn

from tests.soak.child import Child
from tests.soak.expected import states, ticks_before
from tests.soak.part import Part
from tests.soak.served import differing, plain, shown
from tests.soak.source import LANES, connect, notes_of
from views.generations.history import GenerationHistory

DATABASE = "followed"
END_S = 180.0
WAIT_S = 300.0
LOOK_S = 3.0
FIRST_LIFE_S = 150.0
"""The first follower runs at least this long: it builds the views, which needs Spark."""
MOMENTS = ("within postgres", "before postgres", "behind postgres", "verify", "publish")


def _notes(rows):
    """Rows of a table as they are, without the columns that come and go."""
    columns = ("id", "tick", "amount", "note", "flag")
    return {key: {name: row[name] for name in columns} for key, row in rows.items()}


def _totals(rows):
    if not rows:
        return {}
    (lane,) = {row["lane"] for row in rows.values()}
    total = {
        "lane": lane,
        "total": sum(row["balance"] for row in rows.values()),
        "accounts": Decimal(len(rows)),
        "balances": Decimal(len({row["balance"] for row in rows.values()})),
        "newest": max(row["tick"] for row in rows.values()),
    }
    return {f"{lane}-": total}


def _tens(rows):
    """Rows by the last digit of their id: groups that grow, shrink and vanish."""
    groups: dict[Decimal, list[dict]] = {}
    for row in rows.values():
        groups.setdefault(row["id"] % 10, []).append(row)
    return {
        str(digit): {
            "id": digit,
            "notes": Decimal(len(group)),
            "texts": Decimal(len({row["note"] for row in group if row["note"] is not None})),
            "amount": _sum(row["amount"] for row in group),
            "flagged": Decimal(sum(row["flag"] is True for row in group)),
        }
        for digit, group in groups.items()
    }


def _sum(values):
    values = [value for value in values if value is not None]
    return sum(values) if values else None


@dataclass(frozen=True)
class Followed:
    """A view: its query, its table and the table's lanes, and its rows from those of a lane."""

    key: str
    query: str
    table: str
    lanes: tuple[int, ...]
    expected: Callable[[dict], dict]


_TOTALS = """
SELECT lane, sum(balance) AS total, count(*) AS accounts, count(DISTINCT balance) AS balances,
    max(tick) AS newest
FROM bank GROUP BY lane
"""
_TENS = """
SELECT id % 10 AS id, count(*) AS notes, count(DISTINCT note) AS texts, sum(amount) AS amount,
    count_if(flag) AS flagged
FROM notes_2 GROUP BY id % 10
"""
_NOTES = "SELECT id, tick, amount, note, flag FROM notes_1\n"
VIEWS = {
    "followed_notes": Followed("id", _NOTES, notes_of(1), (1,), _notes),
    "followed_totals": Followed("lane", _TOTALS, "bank", LANES, _totals),
    "followed_tens": Followed("id", _TENS, notes_of(2), (2,), _tens),
}


class Followers(Part):
    """Keeps a follower running over its own project, and ends it again and again, until `stop`."""

    def __init__(self, project, seed, stop, journal, dsn, *, defect=None):
        super().__init__("followers", seed, stop)
        self._project, self._journal, self._defect = project, journal, defect
        self._number = 0
        served = make_dsn(dsn, dbname=DATABASE)
        self.judge = FollowedJudge(dsn, served, project / "warehouse")

    def work(self):
        while not self._stopped.is_set():
            self._live()

    def end(self):
        """Run a last follower to the end of the log, and compare the rows that it serves."""
        life = self._begin()
        try:
            for view in VIEWS:
                words = ["-m", "changelog", "wait", view, "--lsn", "now", "--timeout", f"{WAIT_S}"]
                waits = Child(
                    self._project / "logs" / f"wait-{view}.txt",
                    *words, "--project", str(self._project),
                )  # fmt: skip
                waits.ends(WAIT_S + 60)
                if waits.code != 0:
                    self._journal.violation(
                        f"wait for {view} ended with {waits.code}: {waits.last_lines()}:"
                        f" {life.last_lines()}: {life.log}"
                    )
                waits.kill()
            self.judge.look()
            for view in sorted({*VIEWS} - self.judge.shown):
                self._journal.violation(f"{view} shows nothing: {life.last_lines()}: {life.log}")
        finally:
            life.send(signal.SIGTERM)
            life.ends(END_S)
            life.kill()

    def _live(self):
        ways = {self._killed: 35, self._at_moment: 25, self._ended: 15, self._halted: 15}
        (way,) = self._random.choices(list(ways), list(ways.values()))
        moment = self._random.choice(MOMENTS) if way == self._at_moment else ""
        times = self._random.randrange(1, 6)
        life = self._begin(f"{moment}:{times}" if moment else "")
        try:
            seconds = self._random.uniform(8.0, 60.0)
            if self._watched(life, seconds if self._number > 1 else FIRST_LIFE_S):
                way(life)
            elif way == self._at_moment and life.code == -signal.SIGKILL:
                self._journal.count(f"follower kill {moment}")
            else:
                self._settle(life, "by itself", ())
        finally:
            life.kill()

    def _begin(self, kill=""):
        self._number += 1
        words = ["-m", "tests.support.crashing_rebuild"]
        words += ["--kill", kill] if kill else []
        words += ["--defect", self._defect] if self._defect else []
        words += ["--", "--project", str(self._project), "--all", "--follow"]
        return Child(self._project / "logs" / f"follower-{self._number:04}.txt", *words)

    def _watched(self, life, seconds):
        """Look at what is shown from time to time; tell whether the follower lives on."""
        while seconds > 0 and life.lasts(min(LOOK_S, seconds), self._stopped):
            seconds -= LOOK_S
            self._look()
        return life.code is None and not self._stopped.is_set()

    def _look(self):
        try:
            self.judge.look()
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            self._journal.say("followed views: the server is away")

    def _killed(self, life):
        life.kill()
        self._journal.count("follower kill -9")

    def _at_moment(self, life):
        """Do as to any other: the moment did not come."""
        self._killed(life)

    def _ended(self, life):
        life.send(signal.SIGTERM)
        self._journal.count("follower SIGTERM")
        if life.ends(END_S):
            self._settle(life, "on SIGTERM", {0, 1, -signal.SIGTERM})
        elif not self._journal.disturbed(life.began):
            self._journal.violation(f"a follower did not end on SIGTERM: {life.log}")

    def _halted(self, life):
        life.send(signal.SIGSTOP)
        self._journal.count("follower SIGSTOP")
        self._stopped.wait(self._random.uniform(0.5, 15.0))
        life.send(signal.SIGCONT)
        if self._watched(life, self._random.uniform(3.0, 15.0)):
            self._killed(life)
        else:
            self._settle(life, "after SIGCONT", ())

    def _settle(self, life, when, allowed):
        """Say so where a follower ended by a code that the moment does not explain."""
        code = life.code
        fine = code in allowed or (code is None and self._stopped.is_set())
        self._journal.followers[f"{when}: {code}"] += 1
        if not fine and not (code in (1, 5) and self._journal.disturbed(life.began)):
            self._journal.violation(
                f"a follower {when} ended with {code}: {life.last_lines()}: {life.log}"
            )


class FollowedJudge:
    """Compares what readers of each view see with the source at the LSN that the view names."""

    def __init__(self, source, served, warehouse):
        self._source, self._served, self._warehouse = source, served, warehouse
        self.shown = set()
        self._seen = set()
        self.judged = self.rows = 0
        self.wrong: list[str] = []

    def look(self):
        """Judge what is shown now and was not judged; both servers must answer."""
        for view in VIEWS:
            with closing(connect(self._served)) as served:
                shows = _shown_by(served, view)
            if shows is None:
                continue
            generation, place, rows = shows
            lsn = place or self._built_at(view, generation)
            if lsn is None or (view, generation, lsn) in self._seen:
                continue
            with closing(connect(self._source)) as source, source.cursor() as cursor:
                wrong = self._differences(cursor, view, lsn, rows)
            self._seen.add((view, generation, lsn))
            self.shown.add(view)
            self.judged += 1
            self.rows += len(rows)
            if wrong:
                self.wrong.append(f"{view} at {lsn}: {wrong}")

    def _built_at(self, view, generation):
        """Return the LSN of a generation that has not gone forward; None before it is on record."""
        history = GenerationHistory(str(self._warehouse)).rows([view])
        return next((row.lsn for row in history if row.generation == generation and row.lsn), None)

    def _differences(self, cursor, view, lsn, rows):
        """Return the differences from the nearest state of the source; empty if they equal one.

        Of a view over several lanes the lanes are told apart by the rows' own column.
        """
        followed = VIEWS[view]
        told = []
        for lane in followed.lanes:
            mine = [row for row in rows if row.get("lane", lane) == lane]
            found = []
            for tick in ticks_before(cursor, lane, lsn):
                wanted = followed.expected(states(cursor, followed.table, lane, tick)[-1])
                wrong = differing({key: plain(row) for key, row in wanted.items()}, mine)
                found.append((tick, wrong))
            if all(wrong for _, wrong in found):
                tick, wrong = min(found, key=lambda each: len(each[1]))
                told.append(f"lane {lane}, clock {tick}: {shown(wrong)}")
        return "; ".join(told)


def _shown_by(served, view):
    """Return a view's generation, the LSN that it has gone forward to, and its rows.

    None before there is one; no LSN of one that has not gone forward yet.
    """
    served.set_session(isolation_level="REPEATABLE READ", readonly=True)
    with served, served.cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass('changelog_views.generations'), to_regclass(%s)", (view,)
        )
        if None in (cursor.fetchone() or (None,)):
            return None
        cursor.execute(
            "SELECT generation, frontier ->> 'position' FROM changelog_views.generations AS g"
            " JOIN pg_class AS c ON c.relname = g.relation"
            " JOIN pg_inherits AS i ON i.inhrelid = c.oid"
            " WHERE i.inhparent = to_regclass(%s)",
            (view,),
        )
        entry = cursor.fetchone()
        if entry is None:
            return None
        cursor.execute(f"SELECT * FROM {view}")
        names = [each.name for each in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    generation, place = entry
    return generation, place and place.split(":")[1], rows


def write_project(project, common, dsn):
    """Write the project of the followed views and make the database that serves them."""
    with closing(connect(dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
    (project / "views").mkdir(parents=True)
    (project / "logs").mkdir()
    url = json.dumps(make_dsn(dsn, dbname=DATABASE))
    (project / "changelog.toml").write_text(f"sinks.postgres.url = {url}\n{common}", "utf-8")
    for view, followed in VIEWS.items():
        text = f"-- key: {followed.key}\n-- sinks: postgres\n{followed.query}"
        (project / "views" / f"{view}.sql").write_text(text, "utf-8")
