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

from benchmarks import mart
from tests.soak.child import Child
from tests.soak.expected import states, ticks_before
from tests.soak.mart import MartJudge
from tests.soak.part import Part
from tests.soak.served import differing, lsn_on_record, plain, shown
from tests.soak.shown_table import shown_by
from tests.soak.source import LANES, MART_LANE, connect, notes_of
from tests.support.wait import wait_until

DATABASE = "followed"
END_S = 180.0
WAIT_S = 300.0
LOOK_S = 3.0
FIRST_S = 600.0
"""Within this time the first follower serves all views: it builds them, which needs Spark."""
GLANCE_S = 0.02
ROUNDS = 0.8
"""So many lives are given the time to show something new, the others may end as they start."""
BEGINS_S = 240.0
KEPT = "goes on from what an earlier follower has kept"
MOMENTS = (
    *("scan", "merge", "prove", "verify", "apply"),
    "shown search",
    *(
        f"{moment} {kind}"
        for kind in ("postgres", "search", "cache")
        for moment in ("before", "within", "behind")
    ),
)


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
_NOTES = "SELECT id, tick, amount, note, flag FROM notes_1\n"
_CUSTOMERS = "SELECT id, name, nation_id, segment FROM customers\n"
VIEWS = {
    "followed_notes": Followed("id", _NOTES, notes_of(1), (1,), _notes),
    "followed_totals": Followed("lane", _TOTALS, "bank", LANES, _totals),
    "followed_customers": Followed("id", _CUSTOMERS, "customers", (MART_LANE,), dict),
}
SMALL = ("followed_totals", "nation_revenue", "brand_averages")
"""Views of few rows, most of which change in each round."""


class Followers(Part):
    """Keeps a follower running over its own project, and ends it again and again, until `stop`."""

    def __init__(self, project, seed, stop, journal, endpoints, *, defect=None):
        super().__init__("followers", seed, stop)
        self._project, self._journal, self._defect = project, journal, defect
        self._number = 0
        self.judge = FollowedJudge(endpoints, project / "warehouse")

    def work(self):
        self._first()
        while not self._stopped.is_set():
            self._live()

    def wait_for_first(self):
        """Wait until all views are served; nothing is done to the follower before."""
        wait_until(
            lambda: not (self.is_alive() and self.judge.unjudged()),
            FIRST_S,
            "a follower serves all views",
        )

    def _first(self):
        life = self._begin()
        try:
            while self.judge.unjudged() and life.lasts(LOOK_S, self._stopped):
                for view in self.judge.unjudged():
                    self.judge.look(view)
            if life.code is None and not self._stopped.is_set():
                self._killed(life)
            else:
                self._settle(life, "by itself", ())
        finally:
            life.kill()

    def end(self, beside):
        """Run a last follower to the end of the log, compare the rows that it serves, and call."""
        life = self._begin()
        try:
            # Before it has the locks, `wait` ends: nobody follows the view.
            wait_until(lambda: life.has_said or life.code is not None, WAIT_S, "it plans a round")
            for view in self.judge.views:
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
            self.judge.end()
            for view in self.judge.unjudged():
                self._journal.violation(f"{view} shows nothing: {life.last_lines()}: {life.log}")
            beside()
        finally:
            life.send(signal.SIGTERM)
            life.ends(END_S)
            life.kill()

    def _live(self):
        ways = {self._killed: 35, self._at_moment: 25, self._ended: 15, self._halted: 15}
        way = self.draw(ways)
        moment = self._random.choice(MOMENTS) if way == self._at_moment else ""
        times = self._random.randrange(1, 6)
        life = self._begin(f"{moment}:{times}" if moment else "")
        try:
            if self._random.random() < ROUNDS:
                self._begins(life)
            if self._watched(life, self.pace * self._random.uniform(3.0, 40.0)):
                way(life)
            elif way == self._at_moment and life.code == -signal.SIGKILL:
                self._journal.count(f"follower kill at {moment}")
            else:
                self._settle(life, "by itself", ())
                self.owe(way)
        finally:
            life.kill()
            if KEPT in life.said():
                self._journal.followers[KEPT] += 1

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

    def _begins(self, life):
        """Wait until readers see something new: a slow machine takes its time to start one."""
        before, seconds = self.judge.shown, BEGINS_S
        while self.judge.shown == before and seconds > 0 and life.lasts(LOOK_S, self._stopped):
            seconds -= LOOK_S
            self._look()

    def _look(self):
        try:
            for view in VIEWS:
                self.judge.look(view)
            self.judge.look(self._random.choice(list(mart.VIEWS)))
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            self._journal.say("followed views: the server is away")

    def _killed(self, life):
        life.kill()
        self._journal.count("follower kill -9")

    def _at_moment(self, life):
        """Do as to any other: the moment did not come."""
        self._killed(life)
        self.owe(self._at_moment)

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

    def __init__(self, endpoints, warehouse):
        self._source, self._warehouse = endpoints.postgres, warehouse
        self.served = make_dsn(endpoints.postgres, dbname=DATABASE)
        self.mart = MartJudge(endpoints.postgres, endpoints, self.served, warehouse)
        self.views = (*VIEWS, *mart.VIEWS)
        self._seen = set()
        self._own: dict[str, int] = dict.fromkeys(VIEWS, 0)
        self._rows = 0
        self._wrong: list[str] = []

    @property
    def judged(self):
        """How many states of each view were compared."""
        return {**self._own, **self.mart.judged}

    @property
    def shown(self):
        """How many states were compared."""
        return sum(self.judged.values())

    @property
    def rows(self):
        return self._rows + self.mart.rows

    @property
    def wrong(self):
        return [*self._wrong, *self.mart.wrong]

    def unjudged(self):
        """Return the views of which no state was compared yet."""
        return [view for view, count in self.judged.items() if not count]

    def end(self):
        """Judge what all views show at rest."""
        for view in VIEWS:
            self.look(view)
        self.mart.end()

    def look(self, view):
        """Judge what a view shows now, if that was not judged; both servers must answer."""
        if view in mart.VIEWS:
            self.mart.look(view)
            return
        with closing(connect(self.served)) as served:
            shows = shown_by(served, view)
        if shows is None:
            return
        generation, place, rows = shows
        lsn = place or lsn_on_record(self._warehouse, view, generation)
        if lsn is None or (view, generation, lsn) in self._seen:
            return
        with closing(connect(self._source)) as source, source.cursor() as cursor:
            wrong = self._differences(cursor, view, lsn, rows)
        self._seen.add((view, generation, lsn))
        self._own[view] += 1
        self._rows += len(rows)
        if wrong:
            self._wrong.append(f"{view} at {lsn}: {wrong}")

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


class Glances(Part):
    """Reads small views again and again: at one LSN all readers see the same rows.

    A delta that readers have in two steps is seen so, however soon the second one follows.
    """

    def __init__(self, served, stop, journal):
        super().__init__("glances", 0, stop)
        self._served, self._journal = served, journal
        self._last: dict[str, tuple] = {}
        self.made = self.states = self.mixed = 0

    def work(self):
        while not self._stopped.is_set():
            try:
                with closing(connect(self._served)) as served:
                    while not self._stopped.wait(GLANCE_S):
                        self._look(served)
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                self._stopped.wait(1.0)

    def _look(self, served):
        for view in SMALL:
            shows = shown_by(served, view)
            if shows is None:
                continue
            generation, place, rows = shows
            self.made += 1
            now = {str(sorted(row.items(), key=str)) for row in rows}
            *at, before = self._last.get(view, (None, None, set()))
            if at != [generation, place]:
                self.states += 1
            elif before != now:
                self.mixed += 1
                self._journal.violation(
                    f"{view} at {place} shows two states: {sorted(before ^ now)[:4]}"
                )
            self._last[view] = generation, place, now


def write_project(project, common, endpoints):
    """Write the project of the followed views and make the database that serves them."""
    dsn = endpoints.postgres
    with closing(connect(dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
    (project / "views").mkdir(parents=True)
    (project / "logs").mkdir()
    url = json.dumps(make_dsn(dsn, dbname=DATABASE))
    sinks = f"sinks.postgres.url = {url}\nsinks.search.url = {json.dumps(endpoints.search)}\n"
    sinks += f"sinks.cache.url = {json.dumps(endpoints.cache)}\n"
    (project / "changelog.toml").write_text(f"{sinks}{common}", "utf-8")
    for view, text in mart.VIEWS.items():
        # Of this one `changelog verify --view` asks PostgreSQL.
        dialect = "-- dialect: postgres\n" if view == "customer_cards" else ""
        (project / "views" / f"{view}.sql").write_text(f"{dialect}{text}", "utf-8")
    for view, followed in VIEWS.items():
        text = f"-- key: {followed.key}\n-- sinks: postgres\n{followed.query}"
        (project / "views" / f"{view}.sql").write_text(text, "utf-8")
