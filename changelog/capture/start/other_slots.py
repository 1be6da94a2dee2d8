"""Other captures on the same frontier topic: two that write to one topic would harm each other.

Of a table, each takes the other's records for those of a stranger and copies the table again,
endlessly. Of messages and schema changes, each takes the other's records for its own and skips
records that it has to write. A slot of the same server that is gone or lost writes nothing, so
another one may take its place; for a slot of another server nobody can tell.
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
        ConfigurationError: the frontiers of another slot name one of them; the slot is usable, or
            of another server.
        SourceError: the server does not list its slots.
        UnavailableLogError: the broker does not answer.
    """
    own = environment.settings.capture.slots
    for slot in environment.frontiers.slots():
        systems = {} if slot in own else _topics_of(environment, slot)
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
        harm = "copy each other's tables again and again"
        way = "take another --topic-prefix, or tables that it does not have (--tables, --exclude)"
    else:
        harm = "each start would skip everything before the other's last record"
        way = "take another --topic-prefix, or leave out --messages and --ddl in one of the two"
    if is_here:
        way += (
            f"; or, if it is no longer wanted, end it and run `changelog slot drop --slot {slot}`"
        )
    return ConfigurationError(
        f"the capture of {whose} has {_listed_topics(shared)} too: both would write there, "
        f"and {harm}",
        hint=way,
    )


def _topics_of(environment: Environment, slot: str) -> dict[str, set[str]]:
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


def _listed_topics(topics: Collection[str]) -> str:
    few = ", ".join(f'"{topic}"' for topic in list(topics)[:3])
    more = f" and {len(topics) - 3} more" if len(topics) > 3 else ""  # noqa: PLR2004 - as above
    return f"the topic {few}" if len(topics) == 1 else f"the topics {few}{more}"
