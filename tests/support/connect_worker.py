"""`changelog serve`, perhaps with a seeded defect, or less patient than it is.

`DEFECT`: rows and their places in two transactions. Of streams of changes: `FORGETS` begins each at
the newest frontier, wherever its client goes on from; `TRUSTS` takes every mark for one from which
nothing was forgotten; `READS_AHEAD` reads on, whether the client takes what it is sent or not.
`HURRIES` is no defect: a client that takes nothing is let go after two seconds.
"""

import queue
import sys
import threading
from typing import Any

from changelog.cli import main
from changelog.connect.postgres.target import Target

DEFECT = "--places-are-never-moved"
FORGETS = "--streams-forget-where-they-were"
TRUSTS = "--streams-trust-every-mark"
READS_AHEAD = "--streams-read-ahead"
HURRIES = "--streams-hurry"


def seed() -> None:
    """Write rows without their places: as if a process always died between two transactions."""
    whole = Target.write

    def rows_alone(self, asked, moves, *, refuse):
        whole(self, asked, {}, refuse=refuse)

    Target.write = rows_alone  # type: ignore[method-assign]


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
        (FORGETS, forget),
        (TRUSTS, trust),
        (READS_AHEAD, read_ahead),
        (HURRIES, hurry),
    ):
        if defect in sys.argv:
            sys.argv.remove(defect)
            seeded()
    main()
