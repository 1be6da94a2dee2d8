"""Faults of the servers, one after the other, each drawn from the seed."""

import time

from changelog.contract.base.errors import StackError
from tests.soak.part import Part
from tests.soak.planned import OUTAGES

SERVERS = {"kafka": 4, "postgres": 3, "registry": 2}
QUIET_S = (2.0, 10.0)


class Outages(Part):
    """Lets servers fail and recover until `stop`; leaves all of them running."""

    def __init__(self, stack, seed, stop, journal):
        super().__init__("outages", seed, stop)
        self._stack, self._journal = stack, journal

    def work(self):
        """Leave all of them up for as long as one was away: some machines take long to start it."""
        away = 0.0
        while not self._stopped.wait(self.pace * self._random.uniform(*QUIET_S) + away):
            name, how = self.draw(
                {(name, how): weight for name, weight in SERVERS.items() for how in OUTAGES}
            )
            began = time.monotonic()
            self._strike(name, how)
            away = time.monotonic() - began

    def _strike(self, name, how):
        server = self._stack.server(name)
        with self._journal.outage(f"{name} {how}"):
            {"kill -9": server.kill, "SIGTERM": server.stop, "SIGSTOP": server.pause}[how]()
            self._stopped.wait(self._random.uniform(0.2, 8.0))
            if how == "SIGSTOP":
                server.resume()
            self._recover(name)

    def _recover(self, name):
        """Start it, twice if need be: the registry's database may not answer yet."""
        try:
            self._stack.server(name).start()
        except StackError as error:
            self._journal.say(f"{name} did not start: {str(error).splitlines()[0]}; again")
            self._stack.server(name).start()
