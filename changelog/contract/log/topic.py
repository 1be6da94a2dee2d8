"""Names and required settings of the topics, and the topics that others keep for themselves."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.pattern import pasted, quoted
from changelog.contract.rows.relation import TableName

_FORBIDDEN = re.compile(r"[^a-zA-Z0-9._-]")
MAX_TOPIC_LENGTH = 249
LARGEST = "max.message.bytes"
DEFAULT_MIN_COMPACTION_LAG_MS = 6 * 3_600_000
DEFAULT_DELETE_RETENTION_MS = 7 * 24 * 3_600_000


def topic_name(table: TableName, prefix: str = "") -> str:
    """Return the topic of a table: `[prefix.][schema.]table`, the schema left out when `public`.

    Raises ConfigurationError: the name is too long for Kafka.
    """
    parts = [prefix] if prefix else []
    parts += [] if table.schema == "public" else [table.schema]
    name = _FORBIDDEN.sub("_", ".".join([*parts, table.table]))
    if len(name) > MAX_TOPIC_LENGTH:
        raise ConfigurationError(
            f"the topic of table {table.said} would have {len(name)} characters",
            hint=f"Kafka allows {MAX_TOPIC_LENGTH}; leave the table out or shorten the prefix",
        )
    return name if name not in {".", ".."} else "_" * len(name)


def check_name(topic: str) -> None:
    """Refuse a name that no topic has.

    Raises ConfigurationError: it is empty or too long, or has other characters than Kafka's names.
    """
    is_dots = topic in {".", ".."}
    if is_dots or not 0 < len(topic) <= MAX_TOPIC_LENGTH or _FORBIDDEN.search(topic):
        raise ConfigurationError(
            f'"{topic}" is no name of a topic',
            hint=f"1 to {MAX_TOPIC_LENGTH} letters of ASCII, digits and . _ -",
        )


def schema_topic(prefix: str = "") -> str:
    """Return the topic of the schemas, which is there where no registry is."""
    return f"{prefix}._schemas" if prefix else "_schemas"


def schema_key(subject: str, schema: str) -> bytes:
    """Return the key under which a schema is on the topic of schemas: subject and fingerprint."""
    return f"{subject}#{hashlib.sha256(schema.encode('utf-8')).hexdigest()[:16]}".encode()


def schema_noted(key: bytes | None, value: bytes | None) -> tuple[str, str] | None:
    """Return subject and schema of a record on the topic of schemas; None for another program's."""
    try:
        subject, _, _ = (key or b"").decode("utf-8").rpartition("#")
        schema = (value or b"").decode("utf-8")
    except UnicodeDecodeError:
        return None
    return (subject, schema) if key == schema_key(subject, schema) else None


def schema_topic_of(topic: str, table: TableName) -> str:
    """Return the topic of the schemas that belongs to the topic of a table."""
    name = topic_name(table)
    return schema_topic("" if topic == name else topic.removesuffix(f".{name}"))


def frontier_topic(prefix: str = "") -> str:
    """Return the topic of the frontiers."""
    return f"{prefix}._frontier" if prefix else "_frontier"


def messages_topic(prefix: str = "") -> str:
    """Return the topic of the messages of `pg_logical_emit_message`."""
    return f"{prefix}._messages" if prefix else "_messages"


def locks_topic(prefix: str = "") -> str:
    """Return the topic of the locks of rebuilds and followers."""
    return f"{prefix}._locks" if prefix else "_locks"


def sequences_topic(prefix: str = "") -> str:
    """Return the topic of the sequences."""
    return f"{prefix}._sequences" if prefix else "_sequences"


def ddl_topic(prefix: str = "") -> str:
    """Return the topic of the schema changes."""
    return f"{prefix}.changelog.ddl" if prefix else "changelog.ddl"


def own_topics(prefix: str) -> dict[str, str]:
    """Return the topics that hold no table, each with what it holds."""
    return {
        frontier_topic(prefix): "the frontier",
        messages_topic(prefix): "the messages",
        ddl_topic(prefix): "the schema changes",
        schema_topic(prefix): "the schemas",
        sequences_topic(prefix): "the sequences",
        locks_topic(prefix): "the locks",
    }


def check_prefix(prefix: str) -> None:
    """Check that topics can have a prefix as it is: two prefixes never share them.

    Raises ConfigurationError: it is too long, or has other characters than Kafka's names.
    """
    if _FORBIDDEN.search(prefix):
        raise ConfigurationError(
            f'capture.topic_prefix (--topic-prefix): "{prefix}" has characters that no topic has',
            hint="Kafka's names have letters of ASCII, digits and . _ -; topics that an older "
            f'version has made for it have the prefix "{_FORBIDDEN.sub("_", prefix)}"',
        )
    longest = max(map(len, own_topics(prefix)))
    if longest > MAX_TOPIC_LENGTH:
        raise ConfigurationError(
            f"capture.topic_prefix (--topic-prefix): with its {len(prefix)} characters a topic "
            f"would have {longest}",
            hint=f"Kafka allows {MAX_TOPIC_LENGTH}: "
            f"{len(prefix) - longest + MAX_TOPIC_LENGTH} are left for the prefix",
        )


def topic_names(tables: Iterable[TableName], prefix: str = "") -> dict[TableName, str]:
    """Return each table its topic.

    Kafka's metrics fold `.` and `_`, and its broker refuses two topics that differ in these
    alone, so such a pair collides too.

    Raises:
        ConfigurationError: tables would share a topic, or take one that is no table's; names all.
    """
    names = {table: topic_name(table, prefix) for table in sorted(tables)}
    own = {_folded(topic): purpose for topic, purpose in own_topics(prefix).items()}
    takers: dict[str, list[TableName]] = {}
    for table, name in names.items():
        takers.setdefault(_folded(name), []).append(table)
    clashes, surplus = [], []
    for topic, tables_of in takers.items():
        others = tables_of if topic in own else tables_of[1:]
        if others:
            sharing = [f"table {table}" for table in tables_of]
            sharing += [own[topic]] if topic in own else []
            clashes.append(f'{" and ".join(sharing)} would share the topic "{names[tables_of[0]]}"')
            surplus += others
    if clashes:
        raise ConfigurationError(
            "; ".join(clashes)
            + ": Kafka does not tell . from _ in names, and other characters become _",
            hint="leave out all but one of each, such as by --exclude "
            f"{pasted(*(quoted(*table) for table in surplus))}, or rename them",
        )
    return names


def _folded(topic: str) -> str:
    return topic.replace(".", "_")


def deletes_by_age(settings: Mapping[str, str]) -> bool:
    """Tell whether a topic with these settings loses records by their age or by its size."""
    keeps_all = settings.get("retention.ms") == "-1" and settings.get("retention.bytes") == "-1"
    return "delete" in settings.get("cleanup.policy", "delete") and not keeps_all


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings required of a topic; they keep a table's log replayable for ever."""

    # how long a record is safe from the cleaner after a newer one of its key; a frontier is exact
    # for as long
    min_compaction_lag_ms: int = DEFAULT_MIN_COMPACTION_LAG_MS
    # how long a tombstone stays after its first cleaning
    delete_retention_ms: int = DEFAULT_DELETE_RETENTION_MS
    # the largest batch of records, compressed; 0 for the brokers' default
    max_message_bytes: int = 0
    # whether the newest record of each key is kept for ever. The topic of a table without a key
    # cannot be: the brokers refuse records without a key on it. Nor is that of the messages, which
    # stand for themselves
    compacted: bool = True

    def to_config(self) -> dict[str, str]:
        """Return Kafka's names and values of a new topic's settings."""
        size = {LARGEST: str(self.max_message_bytes)} if self.max_message_bytes else {}
        same = {"message.timestamp.type": "LogAppendTime", **size}
        if not self.compacted:
            return {"cleanup.policy": "delete", **same}
        return {
            "cleanup.policy": "compact",
            **same,
            "min.compaction.lag.ms": str(self.min_compaction_lag_ms),
            "delete.retention.ms": str(self.delete_retention_ms),
        }

    def differences(self, actual: Mapping[str, str]) -> list[str]:
        """Name each setting of an existing topic that breaks the contract; empty when none.

        A longer lag or retention than asked for keeps every promise, so it is no difference; nor is
        room for larger records.
        """
        faults = []
        for name, required in self.to_config().items():
            has = actual.get(name, "")
            longer = (
                name.endswith((".ms", ".bytes")) and has.isdigit() and int(has) >= int(required)
            )
            if has != required and not longer:
                faults.append(f"{name} is {has or 'not set'}, must be {required}")
        lag = int(actual.get("min.compaction.lag.ms") or 0)
        longest = int(actual.get("max.compaction.lag.ms") or 2**63 - 1)
        if longest < lag:
            faults.append(f"max.compaction.lag.ms is {longest}, below min.compaction.lag.ms")
        return faults


# Suffixes of the topics of a group of workers; the last is there where records come by HTTP.
STATE, TASKS, REQUESTS = "-state", "-tasks", "-requests"

_OF_BROKERS = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


def twin_of(topic: str) -> str:
    """Return another topic of a topic's worker group; empty for a topic of no group.

    >>> twin_of("changelog-connect-state"), twin_of("orders")
    ('changelog-connect-tasks', '')
    """
    for suffix, other in ((STATE, TASKS), (TASKS, STATE), (REQUESTS, STATE)):
        if topic.endswith(suffix):
            return topic.removesuffix(suffix) + other
    return ""


def check_not_kept(
    topics: Collection[str], existing: Callable[[Iterable[str]], Collection[str]]
) -> None:
    """Refuse to write to topics that brokers or workers keep for themselves.

    `existing` returns those of some names that exist.

    Raises ConfigurationError: one is kept so.
    """
    for topic in sorted(_OF_BROKERS & set(topics)):
        raise ConfigurationError(f'topic "{topic}" is the brokers\' own')
    twins = existing([twin for twin in map(twin_of, topics) if twin])
    for topic in sorted(topics):
        if twin_of(topic) in twins:
            raise refused_topic(topic)


def refused_topic(topic: str) -> ConfigurationError:
    """Return the error about a topic of a group of workers, which holds passwords."""
    return ConfigurationError(
        f'topic "{topic}" is where workers of `changelog serve` keep what they know'
    )
