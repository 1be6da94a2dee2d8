"""The place of a project's locks: its folder, and the topic of leases."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ChangelogError, UnavailableError
from changelog.contract.log.topic import locks_topic
from changelog.kafka.cluster import Cluster
from replay.spark.files import check_writable
from views.base.config import RebuildSettings
from views.base.sections import LockOn
from views.generations.history import GenerationHistory
from views.leases.leases import Leases, place_of
from views.leases.topic import LeaseTopic

log = logging.getLogger("changelog.views")

FOLDER = Path(".changelog") / "locks"
_ANSWER_S = 5.0


class LockPlace:
    """The place of a project's locks.

    `leases`: those that hold across machines, None to go without. `warehouse`: tells the warehouse
    from any other: what has a lease of a view's name.
    """

    def __init__(
        self,
        root: Path,
        leases: Leases | None = None,
        warehouse: Callable[[], str] = str,
    ) -> None:
        self.root, self.leases, self._warehouse = root, leases, warehouse

    @cached_property
    def _identity(self) -> str:
        return self._warehouse()

    def lock(self, view: str, kind: str) -> str:
        """Return the name of a lease.

        Raises ChangelogError: the warehouse does not answer.
        """
        return f"{self._identity}/{view}/{kind}"

    def check(self) -> None:
        """Raise if a lease is known to be lost.

        Raises LockedError: that is so.
        """
        if self.leases is not None:
            self.leases.check()

    def confirm(self) -> None:
        """Make sure that this process still has its leases; see `Leases.confirm`.

        Raises LockedError: it has not; UnavailableError: the brokers do not answer, so nobody
        knows.
        """
        if self.leases is not None:
            self.leases.confirm()


def place_for(settings: RebuildSettings) -> LockPlace:
    """Return the place where a run locks its views, by the settings; takes no lock.

    Raises ChangelogError: the project's folder cannot be written.
    """
    project, rebuild = settings.project, settings.rebuild
    if rebuild.lock is LockOn.LOCAL or not project.kafka.brokers:
        return LockPlace(project.root)
    if settings.archive is not None and not _answers(project.kafka):
        log.warning("the brokers do not answer: views are locked on this machine alone")
        return LockPlace(project.root)
    leases = Leases(
        lambda: LeaseTopic(project.kafka, locks_topic(project.topic_prefix)),
        ttl_s=rebuild.lock_seconds,
        place=place_of(folder_of(project.root)),
    )

    def warehouse() -> str:
        check_writable(settings.warehouse)  # says what is wrong with it, which Delta does not
        return GenerationHistory(settings.warehouse).identity()

    return LockPlace(project.root, leases, warehouse)


def _answers(kafka: KafkaConnection) -> bool:
    """Tell whether the brokers answer within a few seconds."""
    try:
        Cluster(kafka, answer_s=_ANSWER_S).id()
    except UnavailableError:
        return False
    return True


def folder_of(root: Path) -> Path:
    """Return the folder of a project's local locks, creating it if needed."""
    folder = root / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ChangelogError(
            f"cannot make the folder of the locks, {folder}: {error.strerror}",
            hint="a rebuild writes in its project's folder",
        ) from error
    return folder
