"""`changelog serve`, perhaps with a seeded defect, or less patient than it is.

`DEFECT`: rows without their places; `AHEAD`: places in a transaction before that of their rows, and
the first worker that is between the two dies there (`DIES_ONCE` in the environment names a file
that says it has happened). Of streams of changes: `FORGETS` begins each at
the newest frontier, wherever its client goes on from; `TRUSTS` takes every mark for one from which
nothing was forgotten; `READS_AHEAD` reads on, whether the client takes what it is sent or not.
`HURRIES` is no defect: a client that takes nothing is let go after two seconds. Faults of records
by HTTP: `tests.support.produce_faults`.
"""

import os
import queue
import signal
import sys
import threading
from typing import Any

from changelog.cli import main
from changelog.connect.postgres.target import SinkDatabase
from tests.support.produce_faults import DIES_ONCE, seed_faults

DEFECT = "--places-are-never-moved"
AHEAD = "--places-move-ahead-of-a-kill"
FORGETS = "--streams-forget-where-they-were"
TRUSTS = "--streams-trust-every-mark"
READS_AHEAD = "--streams-read-ahead"
HURRIES = "--streams-hurry"


def seed() -> None:
    """Write rows without their places: as if a process always died between two transactions."""
    whole = SinkDatabase.write

    def rows_alone(self, asked, moves, *, refuse):
        whole(self, asked, {}, refuse=refuse)

    SinkDatabase.write = rows_alone  # type: ignore[method-assign]


def move_ahead() -> None:
    """Move places before their rows are written, and die between the two, once."""
    whole = SinkDatabase.write

    def ahead(self, asked, moves, *, refuse):
        whole(self, [], moves, refuse=refuse)
        if asked and _is_first(os.environ[DIES_ONCE]):
            os.kill(os.getpid(), signal.SIGKILL)
        whole(self, asked, {}, refuse=refuse)

    SinkDatabase.write = ahead  # type: ignore[method-assign]


def _is_first(path: str) -> bool:
    """Tell whether no process has asked before."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def forget() -> None:
    """Let each stream begin with what comes next."""
    from views.changes.feed import Feed

    whole = Feed.begin

    def begin(self, since):
        whole(self, None if since and since != "start" else since)

    Feed.begin = begin  # type: ignore[method-assign]


def trust() -> None:
    """Ask nothing of a mark's age."""
    from views.changes.feed import Feed

    Feed._require_deletes = lambda *_: None  # type: ignore[method-assign]


def read_ahead() -> None:
    """Keep all events until they are asked for."""
    from views.changes.feed import Feed

    whole = Feed.events

    def events(self):
        held: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def read():
            for each in whole(self):
                held.put(each)

        threading.Thread(target=read, daemon=True).start()
        while True:
            yield held.get()

    Feed.events = events  # type: ignore[method-assign]


def hurry() -> None:
    """Let a client go after two seconds in which it takes nothing."""
    from changelog.connect.http import listening
    from views.page import changes

    changes.STALLED_S = 2.0
    listening.STALLED_MS = 2_000


if __name__ == "__main__":
    for defect, seeded in (
        (DEFECT, seed),
        (AHEAD, move_ahead),
        (FORGETS, forget),
        (TRUSTS, trust),
        (READS_AHEAD, read_ahead),
        (HURRIES, hurry),
    ):
        if defect in sys.argv:
            sys.argv.remove(defect)
            seeded()
    seed_faults(sys.argv)
    main()
