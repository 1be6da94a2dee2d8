"""Other captures of the same frontier topic: two that write one topic would undo each other's work.

Each takes the other's records for a stranger's and copies the table anew, for ever. Of messages and
schema changes a start takes the other's for its own, and leaves out what it has to write. A slot of
the same server that is gone or lost writes nothing, and its place may be taken. What another server
has written stays its own: no log goes on with another server.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from changelog.capture.start.environment import Environment
from changelog.contract.base.errors import ConfigurationError
from changelog.source.stream.slot import inspect_slot


def refuse_shared(environment: Environment) -> None:
    """Check that no other capture writes the topics of tables, messages and schema changes.

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
            shared = sorted(topics & environment.written_topics)
            if not shared:
                continue
            is_here = system == environment.system.system_id
            status = inspect_slot(environment.connection, slot) if is_here else None
            if is_here and (status is None or status.wal_status == "lost"):
                continue
            raise _refusal(slot, shared, environment.topics.values(), is_here=is_here)


def _refusal(
    slot: str, shared: Sequence[str], of_tables: Collection[str], *, is_here: bool
) -> ConfigurationError:
    whose = f'slot "{slot}"' if is_here else f'slot "{slot}", of another server,'
    if {*shared} & {*of_tables}:
        harm = "copy each other's tables anew for ever"
        way = "take another --topic-prefix, or tables that it does not have (--tables, --exclude)"
    else:
        harm = "a start would leave out what lies before the last record of the other"
        way = "take another --topic-prefix, or leave out --messages and --ddl in one of the two"
    if is_here:
        way += (
            f"; or, where it is not wanted any more, end it and `changelog slot drop --slot {slot}`"
        )
    return ConfigurationError(
        f"the capture of {whose} has {_listed(shared)} too: both would write there, and {harm}",
        hint=way,
    )


def _written(environment: Environment, slot: str) -> dict[str, set[str]]:
    """Return the topics that a slot's records name on our frontier topic, by server."""
    frontiers = environment.frontiers
    record, backfill = frontiers.last(slot), frontiers.backfill(slot)
    topics: dict[str, set[str]] = defaultdict(set)
    if record is not None:
        topics[record.frontier.system_id].update({*record.frontier.tables, *record.frontier.ends})
    if backfill is not None:
        copied = (topic for topic, copy in backfill.tables.items() if not copy.fault)
        topics[backfill.system_id].update(copied)
    return topics


def _listed(topics: Collection[str]) -> str:
    few = ", ".join(f'"{topic}"' for topic in list(topics)[:3])
    more = f" and {len(topics) - 3} more" if len(topics) > 3 else ""  # noqa: PLR2004 - as above
    return f"the topic {few}" if len(topics) == 1 else f"the topics {few}{more}"
