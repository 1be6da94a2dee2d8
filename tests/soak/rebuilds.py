"""Rebuilds of the storm, one after the other; each that ends is judged by its code and its rows."""

import signal

import psycopg2

from tests.soak.child import Child
from tests.soak.part import Part

STAGES = (
    "plan",
    "session",
    "settle",
    "replay",
    "write",
    "recheck",
    "verify",
    "keep",
    "publish",
    "record",
)
DEADLINE_S = 400.0
KILLED, LOCKED = -signal.SIGKILL, 5
_NAP_S = 0.5
_PAUSE_S = 10.0


class Rebuilds(Part):
    def __init__(self, project, seed, stop, journal, judge, frontiers, master):
        super().__init__("rebuilds", seed, stop)
        self._project, self._journal = project, journal
        self._judge, self._frontiers, self._master = judge, frontiers, master
        self._number = 0

    def work(self):
        while not self._stopped.is_set():
            self._rebuild()
            self._look()
            self._stopped.wait(_PAUSE_S * (self.pace - 1))

    def _rebuild(self):
        words = self._words()
        fates = {self._left: 55, self._killed: 14, self._at_stage: 12, self._halted: 6}
        fates |= {self._ended: 5, self._beside: 8}
        fate = self.draw(fates)
        kill = self._random.choice(STAGES) if fate == self._at_stage else None
        run = self.begin(words, kill=kill)
        try:
            allowed = fate(run)
            self._settle(run, allowed)
        finally:
            run.kill()

    def _words(self):
        kinds = {
            "--verify full": 45,
            "--refresh": 30,
            "--refresh --verify full": 10,
            "--from checkpoint": 7,
            "--as-of": 8,
        }
        (kind,) = self._random.choices(list(kinds), list(kinds.values()))
        if kind == "--as-of":
            past = self._frontiers.some(self._random)
            return ["--all", "--as-of", past] if past else ["--all"]
        return ["--all", *kind.split()]

    def begin(self, words, kill=None, *, warm=None):
        self._number += 1
        if warm is None:
            warm = self._random.random() < 0.85
        more = ["--master", self._master] if self._master and warm else []
        return Run(self._project, self._number, [*words, *more], kill)

    def _left(self, run):
        run.ends(DEADLINE_S)
        return set()

    def _killed(self, run):
        run.ends(self._random.uniform(0.5, 15.0))
        if run.code is None:
            run.kill()
            self._journal.count("rebuild kill -9")
        else:
            self.owe(self._killed)
        return {KILLED}

    def _at_stage(self, run):
        run.ends(DEADLINE_S)
        if run.code == KILLED:
            self._journal.count(f"rebuild kill at {run.stage}")
        else:
            self.owe(self._at_stage)
        return {KILLED}

    def _ended(self, run):
        run.ends(self._random.uniform(0.5, 15.0))
        if run.code is None:
            run.send(signal.SIGTERM)
            self._journal.count("rebuild SIGTERM")
            run.ends(DEADLINE_S)
        else:
            self.owe(self._ended)
        return {1, -signal.SIGTERM}

    def _halted(self, run):
        run.ends(self._random.uniform(0.5, 10.0))
        if run.code is None:
            run.send(signal.SIGSTOP)
            self._journal.count("rebuild SIGSTOP")
            self._stopped.wait(self._random.uniform(0.5, 10.0))
            run.send(signal.SIGCONT)
        else:
            self.owe(self._halted)
        run.ends(DEADLINE_S)
        return set()

    def _beside(self, run):
        run.ends(self._random.uniform(0.5, 6.0))
        if run.code is not None:
            self.owe(self._beside)
            return set()
        other = self.begin(["--all"])
        self._journal.count("second rebuild")
        try:
            other.ends(DEADLINE_S)
            self._settle(other, {LOCKED})
        finally:
            other.kill()
        run.ends(DEADLINE_S)
        return {LOCKED}

    def _settle(self, run, allowed):
        """Count a code; say so when it is none that the moment allows."""
        code = run.code
        self._journal.rebuilds["late" if code is None else code] += 1
        fine = code == 0 or code in allowed or (code == 1 and self._journal.disturbed(run.began))
        if not fine:
            self._journal.violation(
                f"rebuild {run.number} ({' '.join(run.words)}) ended with {code}:"
                f" {run.last_lines()}: {run.log}"
            )
        self._journal.say(f"rebuild {run.number} {' '.join(run.words[1:3])}: {code}")

    def _look(self):
        """Judge what serves; the source may be away meanwhile."""
        while True:
            try:
                self._judge.look()
            except psycopg2.OperationalError:
                if self._stopped.wait(_NAP_S):
                    return
            else:
                return


class Run(Child):
    def __init__(self, project, number, words, kill=None):
        self.number, self.words, self.stage = number, words, kill or ""
        command = ["-m", "tests.support.crashing_rebuild"]
        command += ["--kill", kill] if kill else []
        command += ["--", "--project", str(project), "--json", *words]
        super().__init__(project / "logs" / f"rebuild-{number:04}.txt", *command)
