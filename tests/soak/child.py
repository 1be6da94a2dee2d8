"""A process of the storm's own, with all that it says in a file; ended by its id alone."""

import signal
import subprocess
import sys
import time
from contextlib import suppress

LOOK_S = 0.05


class Child:
    """A Python command that was started."""

    def __init__(self, log, *words):
        self.log, self.began = log, time.monotonic()
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as out:
            out.write(f"{' '.join(words)}\n".encode())
            out.flush()
            self._process = subprocess.Popen([sys.executable, *words], stdout=out, stderr=out)

    @property
    def code(self):
        """Its exit code, None while it runs."""
        return self._process.poll()

    def lasts(self, seconds, stop):
        """Wait, no longer than until `stop`; tell whether it ran all the time."""
        end = time.monotonic() + seconds
        while self.code is None and time.monotonic() < end:
            if stop.wait(LOOK_S):
                return False
        return self.code is None

    def ends(self, seconds):
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.code is not None

    def send(self, number):
        if self.code is None:
            self._process.send_signal(number)

    def kill(self):
        self.send(signal.SIGKILL)
        self._process.wait()

    def said(self):
        return self.log.read_text("utf-8", "replace")

    @property
    def has_said(self):
        """Whether it has begun to speak; before, a signal may find it without a handler."""
        return self.said().count("\n") > 1

    def last_lines(self):
        """Return what it said last, as much of it as a message bears."""
        return " / ".join(self.said().strip().splitlines()[-2:])[-700:]
