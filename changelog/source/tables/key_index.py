"""Keys of tables without a primary key: by a unique index that somebody has chosen.

An index gives a key when it holds every row once under values that are never null: unique, whole,
on columns that are NOT NULL, and checked at once, since with a deferrable one rows may swap keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from changelog.contract.rows.relation import KeyIndex, ReplicaIdentity, TableName

AUTO = "auto"
"""In place of an index's name: the replica identity's, else the only one that can give a key."""

Choice = Callable[[TableName], str]
"""Returns the name of the index that is to give a table its key, `AUTO`, or an empty text."""

INDEXES = """
SELECT x.indrelid, x.indexrelid, i.relname, x.indisreplident,
       ARRAY(SELECT a.attname::text
               FROM unnest(x.indkey[0:x.indnkeyatts - 1]) WITH ORDINALITY AS k(attnum, place)
               JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.attnum
              ORDER BY k.place),
       CASE WHEN NOT x.indisunique OR x.indisexclusion THEN 'is not unique'
            WHEN x.indpred IS NOT NULL THEN 'is partial'
            WHEN 0 = ANY (x.indkey[0:x.indnkeyatts - 1]) THEN 'is on expressions'
            WHEN NOT x.indimmediate THEN 'is deferrable'
            WHEN NOT (x.indisvalid AND x.indisready AND x.indislive) THEN 'is not valid'
            WHEN EXISTS (SELECT FROM pg_attribute a
                          WHERE a.attrelid = x.indrelid AND NOT a.attnotnull
                            AND a.attnum = ANY (x.indkey[0:x.indnkeyatts - 1]))
            THEN 'has columns that may be null' ELSE '' END
  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
 WHERE x.indrelid = ANY (%s::oid[]) AND NOT x.indisprimary
 ORDER BY x.indrelid, i.relname
"""
"""Each index of some tables but their primary keys: a row of `Index` behind its table's oid."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a table."""

    oid: int  # its object id
    name: str  # without its schema
    is_identity: bool  # whether it is the table's replica identity
    columns: Sequence[str]  # that it is on, in its order; without those that it includes
    fault: str  # why it cannot give a key, or an empty text

    @property
    def key(self) -> KeyIndex:
        """Return the index as the source of a key."""
        return KeyIndex(self.oid, self.name, tuple(self.columns))


@dataclass(frozen=True, slots=True)
class Picked:
    """The key chosen for a table, or the reason why there is none."""

    index: Index | None = None  # the index, or None
    obstacle: str = ""  # why the table cannot be captured, or an empty text
    # what to do about it; empty for what can be done about any table without a key
    remedy: str = ""
    fit: tuple[str, ...] = ()  # indexes that could give it its key


INSERTS = "--operations insert,truncate, which captures no update and delete of any table"
"""Where what an update or a delete brings of the old row is not enough."""

HAS_KEY = Picked(
    obstacle="has a primary key, and an index is named that is to give its key (--key-index)",
    remedy="leave it out of --key-index: its primary key is its key",
)
"""Of a table with a primary key for which an index is named all the same."""


def pick(name: str, indexes: Sequence[Index]) -> Picked:
    """Choose the index, by its name or `AUTO`, that gives a table without a primary key its key."""
    fit = [index for index in indexes if not index.fault]
    if name != AUTO:
        return _named(name, indexes)
    for index in fit:
        if index.is_identity:
            return Picked(index)
    if len(fit) == 1:
        return Picked(fit[0])
    names = tuple(index.name for index in fit)
    if fit:
        listed = ", ".join(f'"{name}"' for name in names)
        obstacle = f"has several unique indexes that can give its key: {listed}"
        return Picked(obstacle=obstacle, fit=names)
    return Picked(obstacle="has no primary key, and no unique index that can give its key")


def _named(name: str, indexes: Sequence[Index]) -> Picked:
    chosen = next((index for index in indexes if index.name == name), None)
    fit = tuple(index.name for index in indexes if not index.fault)
    if chosen is None:
        obstacle = f'has no index "{name}", which is to give its key (--key-index)'
        return Picked(obstacle=obstacle, fit=fit)
    if chosen.fault:
        obstacle = f'has the index "{name}", which is to give its key and {chosen.fault}'
        return Picked(obstacle=obstacle, fit=fit)
    return Picked(chosen, fit=fit)


def identity_obstacle(
    table: TableName, index: Index, identity: ReplicaIdentity, *, partitioned: bool
) -> tuple[str, str]:
    """Return the reason that the stream lacks old keys, and the remedy, or two empty texts."""
    if partitioned:
        # Each partition has an identity of its own, also one that is attached tomorrow.
        return (
            "is partitioned, and its key is an index: which old keys come is not sure",
            f"add a primary key, or {INSERTS}",
        )
    if identity is ReplicaIdentity.FULL or (
        identity is ReplicaIdentity.INDEX and index.is_identity
    ):
        return "", ""
    reason = f'gets its key from the index "{index.name}", which is not its REPLICA IDENTITY'
    alter = f"ALTER TABLE {quoted_name(table)} REPLICA IDENTITY USING INDEX {_quote(index.name)}"
    return f"{reason}: old keys would not come", f"{alter}, or --replica-identity full"


def quoted_name(table: TableName) -> str:
    """Return a table's name as SQL has it."""
    return f"{_quote(table.schema)}.{_quote(table.table)}"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
