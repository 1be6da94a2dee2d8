"""Runs `changelog load` and kills it at a named moment; seeds a defect when asked to.

Usage: python -m tests.support.crashing_load [--kill MOMENT] [--after N] [--defect DEFECT]
       -- OPTIONS OF changelog load

Moments are `moved` (the places, the rows not yet), `copied` (the rows too, nothing is committed)
and `committed`; the N-th of them counts. The defect `apart` writes the places in a transaction of
their own, behind that of the rows, and `apart` is the moment between the two; `ahead` does so
before the rows.
"""

import argparse
import os
import signal
import sys

from changelog.cli import main
from changelog.connect.postgres.places import Places
from changelog.load.target import LoadTarget, TableWriter


class Killer:
    def __init__(self, moment, after):
        self._moment, self._left = moment, after

    def at(self, moment):
        if moment != self._moment:
            return
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def behind(self, kind, name, moment):
        whole = getattr(kind, name)

        def then(*args, **named):
            found = whole(*args, **named)
            self.at(moment)
            return found

        setattr(kind, name, then)


def write_places_apart(killer):
    whole = LoadTarget.write

    def apart(self, writer, records, moves, *, refuse=None):
        rows = whole(self, writer, records, {}, refuse=refuse)
        killer.at("apart")
        with self.session.transaction() as cursor:
            self.places.move(cursor, moves)
        return rows

    LoadTarget.write = apart  # type: ignore[method-assign]


def write_places_ahead():
    whole = LoadTarget.write

    def ahead(self, writer, records, moves, *, refuse=None):
        with self.session.transaction() as cursor:
            self.places.move(cursor, moves)
        return whole(self, writer, records, {}, refuse=refuse)

    LoadTarget.write = ahead  # type: ignore[method-assign]


if __name__ == "__main__":
    own = sys.argv[1 : sys.argv.index("--")]
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", default="")
    parser.add_argument("--after", type=int, default=1)
    parser.add_argument("--defect", choices=["", "apart", "ahead"], default="")
    asked = parser.parse_args(own)
    killer = Killer(asked.kill, asked.after)
    if asked.defect == "apart":
        write_places_apart(killer)
    if asked.defect == "ahead":
        write_places_ahead()
    killer.behind(Places, "move", "moved")
    killer.behind(TableWriter, "write", "copied")
    killer.behind(LoadTarget, "write", "committed")
    sys.argv = ["changelog", "load", *sys.argv[len(own) + 2 :]]
    main()
