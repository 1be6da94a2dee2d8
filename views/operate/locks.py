"""Holders of locks on a project's views, on any machine, from the topic of leases."""

from __future__ import annotations

from changelog.config import Project
from changelog.contract.log.topic import locks_topic
from changelog.runtime.findings import Findings, Level
from replay.base.sections import warehouse_of
from views.base.sections import LockOn, Rebuild
from views.generations.history import History
from views.leases.decide import Lock, Tenure
from views.leases.leases import described
from views.leases.topic import LeaseTopic

_DOES = {"build": "is rebuilt by", "follow": "is followed by", "round": "its readers are moved by"}


def look_at_locks(findings: Findings, project: Project) -> None:
    """Add the holders of locks of the project's warehouse to the findings; creates nothing."""
    if project.section(Rebuild).lock is LockOn.LOCAL:
        findings.add("locks", Level.OK, "hold in the project's folder alone (rebuild.lock)")
        return
    found = findings.ask("locks", lambda: _held(project))
    if found is None:
        return
    for name, tenure in found:
        _, view, kind = name.split("/")
        what = f"view {view} {_DOES[kind]}" if view else "checkpoints are brought forward by"
        findings.add("locks", Level.OK, f"{what} {described(tenure)}")
    if not found:
        findings.add("locks", Level.OK, f'nobody has one on "{locks_topic(project.topic_prefix)}"')


def _held(project: Project) -> list[tuple[str, Tenure]]:
    """Return the leases that were not given back, of the project's warehouse alone."""
    warehouse = History(warehouse_of(project)).known_identity()
    if warehouse is None or not LeaseTopic.is_there(
        project.kafka, topic := locks_topic(project.topic_prefix)
    ):
        return []
    locks: dict[str, Lock] = {}
    with LeaseTopic(project.kafka, topic) as leases:
        for placed in leases.read():
            locks[placed.lock] = locks.get(placed.lock, Lock()).then(placed)
    return [
        (name, lock.tenure)
        for name, lock in sorted(locks.items())
        if name.startswith(f"{warehouse}/") and lock.tenure is not None and not lock.tenure.is_over
    ]
