"""Other captures of the same frontier topic: two that write one topic would undo each other's work.

Each takes the other's records for a stranger's and copies the table anew, for ever. A slot that is
gone or lost writes nothing, and its place may be taken.
"""

from __future__ import annotations

from collections.abc import Collection

from changelog.capture.start.environment import Environment
from changelog.contract.base.errors import ConfigurationError
from changelog.source.stream.slot import inspect_slot, other_slots


def refuse_shared(environment: Environment) -> None:
    """Check that no other capture of this server writes the tables' topics.

    Raises:
        ConfigurationError: the frontiers of another slot, which is still there, name one of them.
        SourceError: the server does not tell its slots.
        UnavailableLogError: the broker does not answer.
    """
    own = environment.settings.capture.slots
    for slot in other_slots(environment.connection, own):
        shared = sorted(_written(environment, slot) & {*environment.topics.values()})
        status = inspect_slot(environment.connection, slot) if shared else None
        if status is None or status.wal_status == "lost":
            continue
        raise ConfigurationError(
            f'the capture of slot "{slot}" has {_listed(shared)} too: both would write there, and '
            "copy each other's tables anew for ever",
            hint="take another --topic-prefix, or tables that it does not have (--tables, "
            "--exclude); or, where it is not wanted any more, end it and "
            f"`changelog slot drop --slot {slot}`",
        )


def _written(environment: Environment, slot: str) -> set[str]:
    """Return the topics of tables that a slot's records on our frontier topic name."""
    frontiers, system = environment.frontiers, environment.system.system_id
    record, backfill = frontiers.last(slot), frontiers.backfill(slot)
    topics: set[str] = set()
    if record is not None and record.frontier.system_id == system:
        topics.update(record.frontier.tables)
    if backfill is not None and backfill.system_id == system:
        topics.update(topic for topic, copy in backfill.tables.items() if not copy.fault)
    return topics


def _listed(topics: Collection[str]) -> str:
    few = ", ".join(f'"{topic}"' for topic in list(topics)[:3])
    more = f" and {len(topics) - 3} more" if len(topics) > 3 else ""  # noqa: PLR2004 - as above
    return f"the topic {few}" if len(topics) == 1 else f"the topics {few}{more}"
