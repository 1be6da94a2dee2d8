"""Run a storm: python -m tests.soak [--seed N] [--minutes M] [--postgres 15|16|18] …

Prints a line for what happens, and one JSON object at the end. Ends with 0 when nothing was wrong,
else with 1; then logs and data stay in the directory that the last line of text names.
"""

import argparse
import json
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from changelog.stack.stack import Stack
from tests.soak.captures import Captures, command
from tests.soak.child import Child
from tests.soak.ending import Ending
from tests.soak.followers import KEPT, Followers, Glances
from tests.soak.frontiers import Frontiers
from tests.soak.journal import Journal
from tests.soak.mart import MartWriter, make_mart
from tests.soak.outages import SERVERS, Outages
from tests.soak.part import Part
from tests.soak.planned import LONG_MINUTES, missing_faults, never
from tests.soak.project import TABLE_VIEWS, write_projects
from tests.soak.rebuilds import Rebuilds
from tests.soak.served import TOTALS, Judge
from tests.soak.source import LANES, make
from tests.soak.verified import Verified
from tests.soak.writers import Changes, Writer, transactions
from tests.support.connect_server import ConnectServer
from tests.support.services import KAFKA_PROPERTIES

PREFIX = "soak"
JOIN_S = 900.0
FIRST_S = 180.0
PROGRESS_S = 20.0
LATEST_S = 600.0
"""So much longer a storm lasts, at most, until all that it has planned has happened."""
LEAST = 3
"""States of each followed view that are compared: the first, the last, and one of the storm."""
LONGEST = 1500
SETTINGS = {"fsync": "off", "max_connections": "60"}


def options():
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--seed", type=int, help="of every choice; drawn and told when left out")
    parser.add_argument("--minutes", type=float, default=20.0, help="of the storm itself")
    parser.add_argument("--postgres", type=int, default=16, choices=(15, 16, 18))
    parser.add_argument("--rate", type=float, default=25.0, help="transactions a second and lane")
    parser.add_argument("--pace", type=float, default=1.0, help="faults are so much further apart")
    parser.add_argument("--calm", action="store_true", help="servers never fail")
    parser.add_argument("--cold", action="store_true", help="every rebuild starts its own Spark")
    parser.add_argument(
        "--defect", help="one of tests.support.crashing_capture: the storm must fail"
    )
    parser.add_argument(
        "--no-follow", dest="follow", action="store_false", help="no followed views"
    )
    parser.add_argument(
        "--follower-defect",
        help="one of tests.support.crashing_rebuild, in followers: the storm must fail",
    )
    parser.add_argument(
        "--verify", action="store_true", help="compare followed copies by `changelog verify` beside"
    )
    parser.add_argument(
        "--planted",
        action="store_true",
        help="with --verify: alter a row and a document: the storm must fail",
    )
    parser.add_argument("--dir", type=Path, help="for data and logs; made, and kept")
    return parser.parse_args()


def main():
    """Run it, print what was found, end with 1 when anything was wrong."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    asked = options()
    seed = asked.seed if asked.seed is not None else secrets.randbelow(10**6)
    folder = asked.dir or Path(tempfile.mkdtemp(prefix="changelog-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # the servers run as another user under root
    journal = Journal()
    journal.say(f"seed {seed}, {asked.minutes:g} minutes, PostgreSQL {asked.postgres}, in {folder}")
    storm = Storm(asked, seed, folder, journal)
    figures = storm.run()
    wrong = [*journal.violations, *storm.judge.wrong]
    for each in wrong:
        sys.stdout.write(f"  {each[:LONGEST]}\n")
    if wrong:
        sys.stdout.write(f"{len(wrong)} violations with seed {seed}; logs and data: {folder}\n")
    elif not asked.dir:
        shutil.rmtree(folder)
    figures = {"seed": seed, "postgres": asked.postgres, **figures, "violations": len(wrong)}
    sys.stdout.write(json.dumps(figures) + "\n")
    return 1 if wrong else 0


class Storm:
    """One run: servers, writers, captures, rebuilds, and the faults of all of them."""

    def __init__(self, asked, seed, folder, journal):
        self._asked, self._seed, self._folder, self._journal = asked, seed, folder, journal
        self.judge = Judge("", "", ())
        self._followers: Followers | None = None
        self._glances: Glances | None = None
        self._verified: Verified | None = None

    def run(self):
        stack = Stack(
            self._folder / "stack",
            postgres_version=self._asked.postgres,
            postgres_settings=SETTINGS,
            kafka_properties=KAFKA_PROPERTIES,
            java_options=["-XX:TieredStopAtLevel=1"],
            with_=("search", "cache") if self._asked.follow else (),
        )
        with stack:
            project = self._folder / "project"
            write_projects(project, stack.endpoints(), PREFIX, followed=self._asked.follow)
            make(stack.endpoints().postgres)
            if self._asked.follow:
                make_mart(stack.endpoints().postgres)
            if self._asked.cold:
                return self._on(stack, project, None)
            (self._folder / "spark").mkdir()
            with ConnectServer(self._folder / "spark") as spark:
                return self._on(stack, project, spark.url)

    def _on(self, stack, project, master):
        endpoints = stack.endpoints()
        views = (*TABLE_VIEWS, TOTALS)
        self.judge = Judge(endpoints.postgres, project / "warehouse", views)
        storm, last = threading.Event(), threading.Event()
        dsn, seed, journal = endpoints.postgres, self._seed, self._journal
        frontiers = Frontiers(endpoints.brokers, PREFIX, last, journal)
        named = {"rate": self._asked.rate, "frontiers": frontiers}
        writers: list[Changes] = [Writer(dsn, lane, seed, last, **named) for lane in LANES]
        if self._asked.follow:
            writers.append(MartWriter(dsn, seed, last, **named))
        captures = Captures(project, seed, storm, journal, defect=self._asked.defect)
        rebuilds = Rebuilds(project, seed, storm, journal, self.judge, frontiers, master)
        outages = Outages(stack, seed, storm, journal)
        parts: list[Part] = [captures, rebuilds, *([] if self._asked.calm else [outages])]
        if self._asked.follow:
            parts += self._make_followers(project, storm, endpoints, frontiers)
        for part in parts:
            part.pace = self._asked.pace
        try:
            seconds = self._run(parts, writers, frontiers, storm, last)
            for each in [*parts, *writers, frontiers]:
                if each.failure is not None or each.is_alive():
                    journal.violation(f"{each.name} failed: {each.failure!r}")
            if len(frontiers.epochs) != 1:  # a first start that was killed may have made the second
                journal.violation(f"frontiers of the epochs {sorted(frontiers.epochs)}")
            return self._ended(project, endpoints, writers, frontiers, seconds)
        finally:
            if self._verified is not None:
                self._verified.close()

    def _make_followers(self, project, storm, endpoints, frontiers) -> list[Part]:
        folder = project.with_name(f"{project.name}-followed")
        if self._asked.verify:
            self._verified = Verified(
                endpoints, PREFIX, folder, self._journal, frontiers, planted=self._asked.planted
            )
        self._followers = Followers(
            folder,
            self._seed,
            storm,
            self._journal,
            endpoints,
            defect=self._asked.follower_defect,
        )
        self._glances = Glances(self._followers.judge.served, storm, self._journal)
        return [self._followers, self._glances]

    def _run(self, parts, writers, frontiers, storm, last):
        """Run all parts for the time that is asked for; return the seconds of it.

        Captures, which are the first part, have written a frontier, and followers have served all
        views, before the others begin.
        """
        began = time.monotonic()
        try:
            for each in (*writers, parts[0], frontiers):
                each.start()
            frontiers.wait_for_first(FIRST_S)
            if self._followers is not None:
                self._followers.start()
                self._followers.wait_for_first()
                self._journal.say("all followed views are served")
            began = time.monotonic()
            for each in parts:
                if each.ident is None:
                    each.start()
            if self._verified is not None:
                self._verified.start()
            self._wait(began, writers, frontiers, parts)
        finally:
            storm.set()
            for each in parts:
                if each.ident is not None:
                    each.join(JOIN_S)
            last.set()
            for each in (*writers, frontiers):
                each.join(JOIN_S)
        return time.monotonic() - began

    def _ended(self, project, endpoints, writers, frontiers, seconds):
        """Compare all at the end; return the figures."""
        began = time.monotonic()
        if self._followers is not None:
            self._follow_to_the_end(project, self._followers)
        asked, journal = self._asked, self._journal
        ending = Ending(
            project, PREFIX, endpoints, journal, self.judge, asked.defect, followed=asked.follow
        )
        final = ending.check()
        told = self._figures(writers, frontiers, final, seconds + time.monotonic() - began)
        told["never_happened"] = self._never_happened(writers)
        for each in told["never_happened"]:
            journal.violation(f"planned, and never happened: {each}")
        return told

    def _never_happened(self, writers, least=LEAST):
        """Return the planned events that never happened; with any, the storm counts as failed.

        `least`: states of each followed view that are compared.
        """
        asked = self._asked
        minutes = asked.minutes / asked.pace
        found = never({each.name: (each.kinds(), each.done) for each in writers}, minutes)
        found += missing_faults(
            self._journal.faults,
            minutes=minutes,
            servers=() if asked.calm else SERVERS,
            follow=asked.follow,
        )
        found += [] if self.judge.judged else ["a generation is compared"]
        if self._followers is not None and self._glances is not None:
            judged = self._followers.judge.judged
            found += [f"a state of {view} in the storm" for view, n in judged.items() if n < least]
            if minutes >= LONG_MINUTES and not self._journal.followers[KEPT]:
                found.append(f"a follower {KEPT}")
            found += [] if self._glances.states > LEAST else ["glances at several states"]
        if self._verified is not None:
            found += self._verified.missing()
        return found

    def _follow_to_the_end(self, project, followers):
        capture = Child(project / "logs" / "capture-followed.txt", *command(f"{project}-least"))
        try:
            verified = self._verified
            followers.end(beside=verified.end if verified is not None else lambda: None)
            if verified is not None and verified.failure is not None:
                self._journal.violation(f"{verified.name} failed: {verified.failure!r}")
        finally:
            capture.kill()
        self.judge.wrong.extend(followers.judge.wrong)

    def _wait(self, began, writers, frontiers, parts):
        end = began + 60 * self._asked.minutes
        told = time.monotonic()
        while time.monotonic() < end or (
            # A machine that is slow, or shared, takes longer to come to all of it.
            time.monotonic() < end + LATEST_S and self._never_happened(writers, LEAST - 1)
        ):
            time.sleep(0.2)
            if failed := [each.name for each in (*parts, *writers) if not each.is_alive()]:
                self._journal.say(f"ended early: {', '.join(failed)}")
                return
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                self._journal.say(
                    f"{sum(self._journal.faults.values())} faults,"
                    f" {sum(transactions(writers).values())} transactions,"
                    f" {frontiers.number} frontiers, the newest {frontiers.newest},"
                    f" rebuilds {dict(self._journal.rebuilds)},"
                    f" {self.judge.judged} generations judged,"
                    f" {len(self.judge.wrong)} wrong"
                )

    def _figures(self, writers, frontiers, final, seconds):
        done = transactions(writers)
        followed = self._followers and self._followers.judge
        return {
            "minutes": round(seconds / 60, 1),
            "faults": sum(self._journal.faults.values()),
            "faults_by_name": _sorted(self._journal.faults),
            "servers_away_s": round(self._journal.away_s, 1),
            "captures": _sorted(self._journal.captures),
            "rebuilds": _sorted(self._journal.rebuilds),
            "transactions": sum(done.values()),
            "transactions_by_kind": _sorted(done),
            "mart_transactions_by_kind": _sorted(
                transactions([each for each in writers if isinstance(each, MartWriter)])
            ),
            "frontiers": frontiers.number,
            "longest_without_frontier_s": round(frontiers.longest_gap_s, 1),
            "generations_judged": self.judge.judged,
            "rows_judged": self.judge.rows,
            "followers": _sorted(self._journal.followers),
            "followed_states_judged": followed.shown if followed else 0,
            "followed_states_by_view": followed.judged if followed else {},
            "followed_rows_judged": followed.rows if followed else 0,
            "glances": self._glances.made if self._glances else 0,
            "states_glanced_at": self._glances.states if self._glances else 0,
            "mixed_states": self._glances.mixed if self._glances else 0,
            "verified": self._verified.figures() if self._verified else {},
            "final": final,
            "mismatches": len(self.judge.wrong),
        }


def _sorted(counter: Counter):
    return {str(name): counter[name] for name in sorted(counter, key=str)}


if __name__ == "__main__":
    sys.exit(main())
