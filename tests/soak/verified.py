"""`changelog verify --every` in the storm: copies that its line fills are compared each minute.

A copy that is behind by more than `--settle` rightly counts as different, and a storm makes it so.
How far the log and the follower are behind is therefore measured beside, by the LSNs that they name
themselves: a verdict that a copy differs that was not so far behind is a false alarm.
"""

import json
import re
import signal
import threading
import time
from bisect import bisect_right
from collections import Counter, deque
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime

import httpx
import psycopg2
from psycopg2.extensions import make_dsn

from benchmarks.mart import PROBE
from changelog.runtime.tls_trust import authorities
from tests.soak.child import Child
from tests.soak.followers import DATABASE
from tests.soak.frontiers import lsn_number
from tests.soak.part import Part
from tests.soak.served import lsn_on_record
from tests.soak.source import connect, notes_of
from tests.support.wait import wait_until

SETTLE_S = 60.0
"""A round of the storm seldom lasts much longer: it ends when the source fails."""
LOOK_S = 1.0
SLACK_S = 10.0
"""So much a measured lag may be off: it is measured each second, if the source answers."""
END_S = 600.0
PLANTED = "planted"
_BY_CODE = {1: "unreachable", 4: "undecided"}
"""Outcomes of rounds that have no verdict, by their exit code."""
_ORDERS = """
SELECT o.id, o.status, o.total, o.day, c.name AS customer, n.name AS nation,
  (SELECT coalesce(json_agg(json_build_object('no', l.no, 'name', p.name,
     'quantity', l.quantity::text) ORDER BY l.no), '[]')
   FROM lines l LEFT JOIN parts p ON p.id = l.part_id WHERE l.order_id = o.id) AS lines
FROM orders o JOIN customers c ON c.id = o.customer_id JOIN nations n ON n.id = c.nation_id
"""
_PLACE = """
SELECT generation, frontier ->> 'position' FROM changelog_views.generations AS g
JOIN pg_class AS c ON c.relname = g.relation JOIN pg_inherits AS i ON i.inhrelid = c.oid
WHERE i.inhparent = to_regclass('followed_notes')
"""
_SOURCE = """
SELECT pg_current_wal_insert_lsn(), ARRAY[n_tup_ins, n_tup_upd, n_tup_del, n_live_tup]
FROM pg_stat_user_tables WHERE relname = %s
"""
_PLANTING = f"""
UPDATE followed_customers SET segment = '{PLANTED}'
WHERE id = {PROBE} AND segment <> '{PLANTED}' RETURNING id
"""


@dataclass(frozen=True)
class Copy:
    """A copy: the words that say what is compared with what, and whose lag it has."""

    name: str
    line: str
    words: tuple[str, ...]


def copies(endpoints, prefix, project):
    """Return a copy of each kind; `project` is that of the followed views."""
    source, at = ("--source", endpoints.postgres), ("--project", str(project))
    served = f"postgres:{make_dsn(endpoints.postgres, dbname=DATABASE)} dbname={DATABASE}"
    notes = notes_of(1)
    fixed = ("--columns", "id,tick,amount,at,flag,note,doc")  # other ones come and go
    shown = ("--columns", "id,tick,amount,note,flag")
    topic = ("--target", f"topic:{prefix}.{notes}", *fixed, *at)
    index = ("--target", f"search:{endpoints.search}/order_documents", "--key", "id")
    table, small = f"{served}/followed_notes", f"{served}/followed_customers"
    return [
        Copy("topic", "log", (notes, *source, *topic)),
        Copy("table", "follower", (notes, *source, "--target", table, *shown)),
        Copy("small table", "follower", ("customers", *source, "--target", small)),
        Copy("index", "follower", ("--query", _ORDERS, *source, *index)),
        Copy("cache", "follower", ("--view", "customer_cards", "--timeout", "240", *at)),
    ]


class Rounds(Child):
    """A running `changelog verify --every`."""

    def __init__(self, copy, folder):
        self.copy, self._place = copy, 0
        words = ["--every", "60s", "--settle", f"{SETTLE_S:g}", "--json"]
        log = folder / f"verify-{copy.name.replace(' ', '-')}.txt"
        super().__init__(log, "-m", "changelog", "verify", *copy.words, *words)

    def new_reports(self):
        """Return the reports of the rounds that have ended since the last call."""
        whole, _, _ = self.said()[self._place :].rpartition("\n")
        self._place += len(whole)
        return [json.loads(text) for text in whole.splitlines() if text.startswith("{")]


class Lags:
    """The time since the source was where log and follower are now."""

    def __init__(self):
        self._times: list[float] = []
        self._lsns: list[int] = []
        self._seen: deque[tuple[float, dict[str, float]]] = deque(maxlen=3600)
        self.longest: dict[str, float] = {}

    def note(self, now, source, reached):
        """Take the source's LSN, None if nothing is written there, and the LSN of each line."""
        if source is not None:
            self._times.append(now)
            self._lsns.append(source)
        lags = {}
        for line, lsn in reached.items():
            behind = self._times[bisect_right(self._lsns, lsn) :]
            lags[line] = now - behind[0] if behind else 0.0
            self.longest[line] = max(self.longest.get(line, 0.0), lags[line])
        self._seen.append((now, lags))

    def about(self, line, moment):
        """Return the longest lag of a line about a moment."""
        near = (lags.get(line, 0.0) for at, lags in self._seen if abs(at - moment) <= SLACK_S)
        return max(near, default=0.0)


class Verified(Part):
    """Compares the copies until `end`, and judges each verdict.

    `planted`: a row of the small table and a document are altered, and stay so: two alarms.
    """

    def __init__(self, endpoints, prefix, project, journal, frontiers, *, planted=False):
        super().__init__("verified", 0, threading.Event())
        self._endpoints, self._journal, self._frontiers = endpoints, journal, frontiers
        self._served = make_dsn(endpoints.postgres, dbname=DATABASE)
        self._copies, self._logs = copies(endpoints, prefix, project), project / "logs"
        self._warehouse, self._planted = project / "warehouse", planted
        self._rounds: list[Rounds] = []
        self._reached: dict[str, int] = {}
        self._last: dict[str, dict] = {}
        self._counts: list[int] = []
        self._verdicts: dict[str, Counter[str]] = {one.name: Counter() for one in self._copies}
        self.lags = Lags()
        self._alarms: list[str] = []
        self._errors: Counter[str] = Counter()

    def work(self):
        self._rounds += [Rounds(one, self._logs) for one in self._copies]
        while not self._stopped.wait(LOOK_S):
            self._measure()
            if self._planted:
                self._plant()
            for one in self._rounds:
                for report in one.new_reports():
                    self._take(one.copy, report)
                if one.code is not None:
                    raise RuntimeError(f"verify of {one.copy.name} ended: {one.last_lines()}")

    def _measure(self):
        if self._frontiers.newest:
            self._reached["log"] = lsn_number(self._frontiers.newest)
        source = None
        with suppress(psycopg2.Error):
            ((lsn, counts),) = _asked(self._endpoints.postgres, _SOURCE, [notes_of(1)])
            # A follower's LSN stays where it is while nobody writes rows of its views.
            source = lsn_number(lsn) if counts != self._counts else None
            self._counts = counts
            for generation, place in _asked(self._served, _PLACE):
                lsn = place.split(":")[1] if place else self._on_record(generation)
                if lsn is not None:
                    self._reached["follower"] = lsn_number(lsn)
        self.lags.note(time.time(), source, self._reached)

    def _on_record(self, generation):
        """Return the LSN of a table that no delta has brought forward yet."""
        return lsn_on_record(self._warehouse, "followed_notes", generation)

    def _take(self, copy, report):
        verdict = self.judge(copy, report)
        self._verdicts[copy.name][verdict] += 1
        if "error" not in report:
            self._last[copy.name] = report
        if verdict not in {"equal", "unreachable"}:
            self._journal.say(f"verify of {copy.name}: {verdict}")

    def judge(self, copy, report):
        """Return the verdict of a round in a word; say so where it is wrong."""
        if code := report.get("exit_code"):
            self._errors[re.sub(r"\W*\d.*", "", report["error"])] += 1
            if code not in _BY_CODE:
                self._journal.violation(f"verify of {copy.name}: {report['error']}")
            return _BY_CODE.get(code, "refused")
        if report["verified"] is not False:
            return "equal" if report["verified"] else "undecided"
        lag_s = self.lags.about(copy.line, _moment(report["ended"]))
        if lag_s >= SETTLE_S - SLACK_S:
            return "late"
        keys = json.dumps([difference["key"] for difference in report["differences"]])
        self._alarms.append(f"{copy.name}: {keys}")
        self._journal.violation(
            f"verify says that {copy.name}, which is {lag_s:.0f} s behind, differs:"
            f" {json.dumps(report['differences'])}"
        )
        return "false alarm"

    def _plant(self):
        """Alter a row of the table and a document that nobody changes."""
        with suppress(psycopg2.Error, httpx.HTTPError):
            _asked(self._served, _PLANTING)
            index = f"{self._endpoints.search}/order_documents"
            with httpx.Client(verify=authorities()) as client:
                client.put(f"{index}/_settings", json={"index.blocks.write": False})
                document = {"doc": {"status": "X"}}  # nothing is written where it is so
                client.post(f"{index}/_update/{PROBE}?refresh=true", json=document)

    def missing(self):
        """Return the copies that were never found equal, or the planted differences not found."""
        if not self._planted:
            return [
                f"{name} is equal" for name, told in self._verdicts.items() if not told["equal"]
            ]
        alarms = [f'{name}: [{{"id": "{PROBE}"}}]' for name in ("small table", "index")]
        return [alarm for alarm in alarms if alarm not in self._alarms]

    def end(self):
        """Compare all copies once more, at rest: each has to be equal; then end the rounds."""
        began = time.time()
        try:
            wait_until(
                lambda: (
                    not self.is_alive() or all(self._is_after(began, each) for each in self._copies)
                ),
                END_S,
                "each copy is compared at the end",
            )
        except AssertionError as error:
            self._journal.violation(str(error))
        self._stopped.set()
        self.join()
        for one in self._rounds:
            one.send(signal.SIGTERM)
        for one in self._rounds:
            one.ends(END_S)
            if one.code != 0 or not self._last.get(one.copy.name, {}).get("verified"):
                self._journal.violation(
                    f"verify of {one.copy.name} at the end: {one.code}: {one.last_lines()}"
                )

    def _is_after(self, moment, copy):
        """Tell whether a copy was compared in a round that began after a moment."""
        last = self._last.get(copy.name)
        return last is not None and _moment(last["began"]) > moment

    def close(self):
        """End all processes, whatever has happened."""
        self._stopped.set()
        if self.ident is not None:
            self.join()
        for one in self._rounds:
            one.kill()

    def figures(self):
        """Return the number of verdicts of each copy, and the longest lags."""
        return {
            "settle_s": SETTLE_S,
            "verdicts": {
                name: dict(sorted(counts.items())) for name, counts in self._verdicts.items()
            },
            "alarms": self._alarms,
            "errors": dict(sorted(self._errors.items())),
            "longest_lag_s": {line: round(lag_s) for line, lag_s in self.lags.longest.items()},
        }


def _moment(place):
    return datetime.fromisoformat(place["at"]).timestamp()


def _asked(dsn, query, parameters=None):
    with closing(connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetchall()
