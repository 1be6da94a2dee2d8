"""Finds planned events that never happened in a storm: without them it proves nothing."""

LONG_MINUTES = 8.0
"""A storm of so many minutes comes to every kind of fault once: each is drawn once at first."""
OUTAGES = ("kill -9", "SIGTERM", "SIGSTOP")
FAULTS = {
    "capture": (
        "capture kill -9", "capture kill at", "capture SIGTERM", "capture SIGSTOP",
        "capture overtaken", "capture down", "second capture",
    ),
    "rebuild": (
        "rebuild kill -9", "rebuild kill at", "rebuild SIGTERM", "rebuild SIGSTOP",
        "second rebuild",
    ),
    "follower": (
        "follower kill -9", "follower kill at", "follower SIGTERM", "follower SIGSTOP",
    ),
}  # fmt: skip
"""Of each command, by the beginnings of their names."""


RARE = ("prune",)
"""Transactions that change nothing before their table is large."""


def never(writers, minutes):
    """Return the kinds of transactions that were never committed, or changed nothing.

    `writers`: of each writer's name all kinds, and a counter of those that were done.
    """
    return [
        f"{name}: {kind}"
        for name, (kinds, done) in writers.items()
        for kind in kinds
        if not done[kind] and (kind not in RARE or minutes >= LONG_MINUTES)
    ]


def missing_faults(faults, *, minutes, servers, follow):
    """Return the kinds of faults that a storm of so many minutes should have had, and had not."""
    if minutes < LONG_MINUTES:
        return []
    wanted = [*FAULTS["capture"], *FAULTS["rebuild"], *(FAULTS["follower"] if follow else ())]
    wanted += [f"{server} {how}" for server in servers for how in OUTAGES]
    return [name for name in wanted if not any(each.startswith(name) for each in faults)]
