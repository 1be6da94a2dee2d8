"""Other captures of the same frontier topic: two that write one topic would undo each other's work.

Each takes the other's records for a stranger's and copies the table anew, for ever. A slot of the
same server that is gone or lost writes nothing, and its place may be taken. What
another server has written stays its own: no log goes on with another server.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from changelog.capture.start.environment import Environment
from changelog.contract.base.errors import ConfigurationError
from changelog.source.stream.slot import inspect_slot


def refuse_shared(environment: Environment) -> None:
    """Check that no other capture writes the tables' topics.

    Raises:
        ConfigurationError: the frontiers of another slot, of this server where it is still there,
            or of another server, name one of them.
        SourceError: the server does not tell its slots.
        UnavailableLogError: the broker does not answer.
    """
    own = environment.settings.capture.slots
    for slot in environment.frontiers.slots():
        systems = {} if slot in own else _written(environment, slot)
        for system, topics in systems.items():
            shared = sorted(topics & {*environment.topics.values()})
            if not shared:
                continue
            is_here = system == environment.system.system_id
            status = inspect_slot(environment.connection, slot) if is_here else None
            if is_here and (status is None or status.wal_status == "lost"):
                continue
            raise _refusal(slot, shared, is_here=is_here)


def _refusal(slot: str, shared: Sequence[str], *, is_here: bool) -> ConfigurationError:
    whose = f'slot "{slot}"' if is_here else f'slot "{slot}", of another server,'
    way = "take another --topic-prefix, or tables that it does not have (--tables, --exclude)"
    if is_here:
        way += (
            f"; or, where it is not wanted any more, end it and `changelog slot drop --slot {slot}`"
        )
    return ConfigurationError(
        f"the capture of {whose} has {_listed(shared)} too: both would write there, and copy each "
        "other's tables anew for ever",
        hint=way,
    )


def _written(environment: Environment, slot: str) -> dict[str, set[str]]:
    """Return the topics of tables that a slot's records name on our frontier topic, by server."""
    frontiers = environment.frontiers
    record, backfill = frontiers.last(slot), frontiers.backfill(slot)
    topics: dict[str, set[str]] = defaultdict(set)
    if record is not None:
        topics[record.frontier.system_id].update(record.frontier.tables)
    if backfill is not None:
        copied = (topic for topic, copy in backfill.tables.items() if not copy.fault)
        topics[backfill.system_id].update(copied)
    return topics


def _listed(topics: Collection[str]) -> str:
    few = ", ".join(f'"{topic}"' for topic in list(topics)[:3])
    more = f" and {len(topics) - 3} more" if len(topics) > 3 else ""  # noqa: PLR2004 - as above
    return f"the topic {few}" if len(topics) == 1 else f"the topics {few}{more}"
