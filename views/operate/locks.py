"""Holders of locks on a project's views, on any machine, from the topic of leases."""

from __future__ import annotations

import os
import time

from changelog.config import Project
from changelog.contract.log.topic import locks_topic
from changelog.runtime.findings import Findings, Level
from replay.base.sections import warehouse_of
from views.base.sections import LockOn, Rebuild
from views.generations.history import History
from views.generations.place import FOLDER
from views.leases.decide import Lock, Tenure
from views.leases.leases import described, place_of
from views.leases.topic import LeaseTopic

_DOES = {"build": "is rebuilt by", "follow": "is followed by", "round": "its readers are moved by"}


def look_at_locks(findings: Findings, project: Project) -> None:
    """Add the holders of locks of the project's warehouse to the findings; creates nothing."""
    if project.section(Rebuild).lock is LockOn.LOCAL:
        findings.add("locks", Level.OK, "hold in the project's folder alone (rebuild.lock)")
        return
    tenures = findings.ask("locks", lambda: _held(project))
    if tenures is None:
        return
    for name, tenure in tenures:
        _, view, kind = name.split("/")
        subject = f"view {view} {_DOES[kind]}" if view else "checkpoints are brought forward by"
        findings.add("locks", Level.OK, f"{subject} {described(tenure)}")
    if not tenures:
        findings.add("locks", Level.OK, f'nobody has one on "{locks_topic(project.topic_prefix)}"')


def _held(project: Project) -> list[tuple[str, Tenure]]:
    """Return the leases of the project's warehouse that are held."""
    warehouse = History(warehouse_of(project)).known_identity()
    if warehouse is None or not LeaseTopic.is_there(
        project.kafka, topic := locks_topic(project.topic_prefix)
    ):
        return []
    locks: dict[str, Lock] = {}
    with LeaseTopic(project.kafka, topic) as leases:
        for placed in leases.read():
            locks[placed.lock] = locks.get(placed.lock, Lock()).then(placed)
    place, now_ms = place_of(project.root / FOLDER), time.time_ns() // 1_000_000
    return [
        (name, lock.tenure)
        for name, lock in sorted(locks.items())
        if name.startswith(f"{warehouse}/")
        and lock.tenure is not None
        and lasts(lock.tenure, place, now_ms)
    ]


def lasts(tenure: Tenure, place: str, now_ms: int) -> bool:
    """Return whether a lock keeps the next run from its view.

    Args:
        tenure: the last one of the lock.
        place: of this project's local locks, where its process can be looked for.
        now_ms: by this machine's clock, in place of the brokers'.
    """
    if tenure.is_over or tenure.until_ms < now_ms:
        return False
    if not place or tenure.place != place:
        return True
    try:
        os.kill(tenure.owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is another user's
    return True
