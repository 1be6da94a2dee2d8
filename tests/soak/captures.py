"""Captures of the storm: one life after another, each ended in a way that the seed has drawn."""

import re
import signal
import time

from changelog.runtime.failpoints import Failpoint
from tests.soak.child import LOOK_S, Child
from tests.soak.part import Part

POINTS = (
    Failpoint.TRANSACTION_PRODUCED,
    Failpoint.RECORD_PRODUCED,
    Failpoint.FRONTIER_WRITTEN,
    Failpoint.ACKNOWLEDGED,
    Failpoint.SLOT_INTENDED,
    Failpoint.SLOT_MADE,
    Failpoint.SNAPSHOT_TAKEN,
    Failpoint.FENCE_TAKEN,
    Failpoint.SEGMENT_WRITTEN,
    Failpoint.CHUNK_COPIED,
    Failpoint.PROGRESS_WRITTEN,
    Failpoint.TABLE_WHOLE,
)
OFTEN = 4
"""So many of the points are in the stream: they are met in every life."""
STREAMS = 0.8
"""So many lives are given the time to come to their stream, the others may end as they start."""
END_S = 120.0
_DESTRUCTIVE = re.compile(r"slot drop|drop the slot|are lost|new snapshot", re.IGNORECASE)


class Captures(Part):
    """Keeps a capture running, and ends it again and again, until `stop`."""

    def __init__(self, project, seed, stop, journal, *, defect=None):
        super().__init__("captures", seed, stop)
        self._project, self._journal = project, journal
        self._defect = defect
        self._number = 0

    def work(self):
        while not self._stopped.is_set():
            self._live()

    def _live(self):
        ways = {
            self._killed: 30,
            self._at_point: 25,
            self._ended: 12,
            self._halted: 10,
            self._overtaken: 6,
            self._beside: 12,
            self._away: 5,
        }
        way = self.draw(ways)
        life = Life(
            self._project,
            self._next(),
            exactly_once=self._random.random() < 0.4,
            kill=self._point() if way == self._at_point else None,
            defect=self._defect,
        )
        try:
            seconds = self._seconds(way)
            if self._random.random() < STREAMS:
                life.begins(END_S, self._stopped)
            if life.lasts(seconds, self._stopped):
                way(life)
            elif way == self._at_point and life.code == -signal.SIGKILL:
                self._journal.count(f"capture kill at {life.point}")
            else:
                self._judge(life, "by itself", ())
                self.owe(way)
        finally:
            life.kill()

    def _next(self):
        self._number += 1
        return self._number

    def _seconds(self, way):
        if way == self._at_point:
            return 30.0 * self.pace
        mean_s = 15.0 if self._random.random() < 0.2 else 3.5
        return 0.5 + self.pace * self._random.expovariate(1 / mean_s)

    def _point(self):
        often = self._random.random() < 0.75
        name = self._random.choice(POINTS[:OFTEN] if often else POINTS[OFTEN:])
        most = {Failpoint.RECORD_PRODUCED: 300, Failpoint.TRANSACTION_PRODUCED: 100}.get(name, 8)
        return f"{name}:{self._random.randrange(1, most + 1) if often else 1}"

    def _killed(self, life):
        life.kill()
        self._journal.count("capture kill -9")

    def _at_point(self, life):
        """Do as to any other: the point was not reached."""
        self._killed(life)
        self.owe(self._at_point)

    def _ended(self, life):
        began = time.monotonic()
        life.send(signal.SIGTERM)
        self._journal.count("capture SIGTERM")
        if not life.ends(END_S):
            life.kill()
            if not self._journal.disturbed(began):
                self._journal.violation(f"capture {life.number} did not end on SIGTERM: {life.log}")
        else:
            self._judge(life, "on SIGTERM", {0 if life.has_said else -signal.SIGTERM})

    def _halted(self, life):
        life.send(signal.SIGSTOP)
        self._journal.count("capture SIGSTOP")
        self._stopped.wait(self._random.uniform(0.5, 12.0))
        life.send(signal.SIGCONT)
        if life.lasts(self._random.uniform(0.5, 5.0), self._stopped):
            self._killed(life)
        else:
            self._judge(life, "after SIGCONT", ())

    def _overtaken(self, life):
        """Let another one take over while it is halted; it has to end by itself, or wait."""
        life.send(signal.SIGSTOP)
        self._journal.count("capture overtaken")
        other = Life(self._project, self._next(), exactly_once=False, defect=self._defect)
        try:
            if other.lasts(self._random.uniform(5.0, 20.0), self._stopped):
                life.send(signal.SIGCONT)
                life.ends(self._random.uniform(5.0, 20.0))
                self._judge(life, "when it was overtaken", (), allowed={0, 1, None})
                life.kill()
                other.lasts(self._random.uniform(0.5, 5.0), self._stopped)
            self._judge(other, "as the one that took over", (), allowed={0, 1, None})
        finally:
            other.kill()

    def _beside(self, life):
        other = Life(self._project, self._next(), exactly_once=False, defect=self._defect)
        self._journal.count("second capture")
        try:
            other.ends(self._random.uniform(10.0, 25.0))
            self._judge(other, "beside one that runs", (), allowed={1, None})
            self._judge(life, "beside a second one", (), allowed={0, 1, None})
        finally:
            other.kill()
        self._killed(life)

    def _away(self, life):
        self._killed(life)
        self._journal.count("capture down")
        self._stopped.wait(self._random.uniform(3.0, 25.0))

    def _judge(self, life, when, expected, allowed=frozenset()):
        """Say so when a capture ended as it should not, or told anybody to destroy something."""
        code, said = life.code, life.said()
        if self._stopped.is_set():
            allowed = {*allowed, None}
        self._journal.captures[f"{when}: {code}"] += 1
        where = f"capture {life.number} {when}"
        if _DESTRUCTIVE.search(said):
            self._journal.violation(f"{where} advises destruction ({code}): {life.log}")
        fine = code in {*expected, *allowed} or (
            code == 1 and self._journal.disturbed(life.began - 1.0)
        )
        if not fine:
            self._journal.violation(f"{where} ended with {code}: {life.last_lines()}: {life.log}")


def command(folder, *, kill=None, defect=None):
    """Return the words of a capture, the real one where nothing is to be done to it."""
    if not (kill or defect):
        return ["-m", "changelog", "capture", "--project", str(folder)]
    words = ["-m", "tests.support.crashing_capture", str(folder)]
    words += ["--kill", kill] if kill else []
    return words + (["--defect", defect] if defect else [])


class Life(Child):
    def __init__(self, project, number, *, exactly_once, kill=None, defect=None):
        self.number, self.point = number, (kill or "").partition(":")[0]
        folder = project.with_name(f"{project.name}-{'exactly' if exactly_once else 'least'}")
        words = command(folder, kill=kill, defect=defect)
        super().__init__(project / "logs" / f"capture-{number:04}.txt", *words)

    def begins(self, seconds, stop):
        """Wait until it streams, or has ended: a slow machine takes its time to start a process."""
        end = time.monotonic() + seconds
        while "streaming from" not in self.said() and time.monotonic() < end:
            if self.code is not None or stop.wait(LOOK_S):
                return
