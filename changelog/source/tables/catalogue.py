"""Tables as PostgreSQL's catalogue has them: columns, keys, and what stands against capture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from changelog.contract.base.errors import UncapturableTableError
from changelog.contract.base.pattern import pasted, quoted
from changelog.contract.rows.relation import Column, Field, Relation, ReplicaIdentity, TableName
from changelog.contract.rows.text import parse_array
from changelog.contract.rows.types import ColumnType, Locale
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import source_errors
from changelog.source.connect.steady import steadily
from changelog.source.connect.tree import TREE
from changelog.source.connect.versions import PUBLISHES_PARTITIONED, for_version
from changelog.source.stream.pgoutput import RelationMessage
from changelog.source.tables.filter import TableFilter, left_out
from changelog.source.tables.key_index import (
    AUTO,
    HAS_KEY,
    INDEXES,
    INSERTS,
    Choice,
    Index,
    Picked,
    identity_obstacle,
    pick,
    quoted_name,
)
from changelog.source.tables.pgtypes import TypeResolver
from changelog.source.tables.unnoticed import uncaptured, unnoticed

# Permanent ordinary tables and roots of partitioned ones; a partition comes with its root.
_OWN = """
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
   AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%%'
"""
_NAMES = f"SELECT c.oid, n.nspname, c.relname {_OWN}"
_TABLES = f"""
SELECT c.oid, n.nspname, c.relname, c.relkind = 'p', c.relreplident::text {_OWN}
   AND (%(oids)s::oid[] IS NULL OR c.oid = ANY (%(oids)s))
 ORDER BY n.nspname, c.relname
"""
# Some columns of the catalogues came with later versions: as JSON they are null before. What the
# builtin provider and these locales have is the order of code points. How letters change case is
# decided apart from it: "Locale Providers" in PostgreSQL's manual, and pg_locale*.c.
_COLUMNS = """
WITH defaults AS (
    SELECT coalesce(to_jsonb(d) ->> 'datlocprovider', 'c') AS provider,
           coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale') AS other_locale,
           d.datcollate::text AS sorted_by, d.datctype::text AS ctype, '' AS name
      FROM pg_database d WHERE d.datname = current_database()
), given AS (
    SELECT l.oid, coalesce(to_jsonb(l) ->> 'collisdeterministic', 'true')::boolean AS exact,
           g.*
      FROM pg_collation l CROSS JOIN LATERAL (
           SELECT * FROM defaults WHERE l.collprovider = 'd'
           UNION ALL
           SELECT l.collprovider::text,
                  coalesce(to_jsonb(l) ->> 'colllocale', to_jsonb(l) ->> 'colliculocale',
                           l.collcollate::text),
                  l.collcollate::text, l.collctype::text, l.collname::text
            WHERE l.collprovider <> 'd') g
     UNION ALL
    SELECT 0, true, defaults.* FROM defaults
), collations AS (
    SELECT oid, exact,
           CASE WHEN provider = 'b' OR (provider = 'c' AND sorted_by IN
                     ('C', 'POSIX', 'C.UTF-8', 'C.UTF8', 'C.utf8')) THEN ''
                ELSE coalesce(nullif(name, ''), CASE provider WHEN 'i' THEN other_locale
                                                ELSE sorted_by END, '') END AS collation,
           CASE WHEN provider = 'c' AND ctype IN ('C', 'POSIX') THEN 'C'
                WHEN provider = 'c' AND current_setting('server_encoding') <> 'UTF8'
                THEN current_setting('server_encoding')
                WHEN provider = 'c' AND ctype ~ '^(tr|az|crh|ku|tt)_' THEN ctype
                WHEN provider = 'c' THEN ''
                WHEN provider = 'b' AND other_locale = 'C' THEN 'C'
                WHEN provider = 'b' AND other_locale = 'C.UTF-8' THEN ''
                WHEN provider = 'i' AND other_locale ~ '^(tr|az|lt|el)\\M' THEN other_locale
                ELSE 'full' END AS ctype
      FROM given
)
SELECT attrelid, attname, atttypid, atttypmod, a.attgenerated::text, coalesce(l.exact, true),
       coalesce(l.collation, ''), coalesce(l.ctype, ''), d.collation, d.ctype
  FROM pg_attribute a LEFT JOIN collations l ON l.oid = nullif(a.attcollation, 0)
 CROSS JOIN (SELECT * FROM collations WHERE oid = 0) d
 WHERE attrelid = ANY(%s) AND attnum > 0 AND NOT attisdropped
 ORDER BY attrelid, attnum
"""
_KEYS = """
SELECT i.indrelid, a.attname, i.indimmediate, i.indisreplident
  FROM pg_index i
 CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k(attnum, place)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
 WHERE i.indrelid = ANY(%s) AND i.indisprimary
 ORDER BY i.indrelid, k.place
"""
# Old columns in the WAL follow the partition's own identity, not its root's.
_LEAVES = f"""{TREE}
SELECT tree.root, n.nspname, c.relname, c.relkind::text, c.relreplident::text,
       coalesce((SELECT i.indisprimary FROM pg_index i
                  WHERE i.indrelid = c.oid AND i.indisreplident), false)
  FROM tree JOIN pg_class c ON c.oid = tree.oid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind <> 'p' AND c.oid <> tree.root
"""


# Partitions are children too, but those of one table, whose rows they hold.
_CHILDREN = """
WITH RECURSIVE tree AS (
    SELECT i.inhparent AS root, i.inhrelid AS oid
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid AND NOT c.relispartition
     UNION
    SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
)
SELECT rn.nspname, r.relname, n.nspname, c.relname
  FROM tree
  JOIN pg_class r ON r.oid = tree.root JOIN pg_namespace rn ON rn.oid = r.relnamespace
  JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
 ORDER BY 1, 2, 3, 4
"""
# Rows of a partitioned table are in its leaves, and each has its own catalogue entries.
_OLDER = f"""{TREE}
SELECT a.attname, a.attmissingval::text, a.atthasdef OR a.attidentity <> '', t.typdelim::text
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid IN (SELECT tree.oid FROM tree JOIN pg_class c ON c.oid = tree.oid
                       WHERE c.relkind <> 'p' OR c.oid = tree.root)
   AND a.attname = ANY(%(names)s) AND NOT a.attisdropped
"""


_WHAT = "cannot read the catalogue"

_STORED = "s"
SENDS_STORED = 180_000
"""From this version on a publication can send generated columns that are stored."""


class Unknown(Enum):
    """Marks a value that the catalogue cannot tell."""

    VALUE = "unknown"


UNKNOWN = Unknown.VALUE


@dataclass(frozen=True, slots=True)
class Table:
    """A user's table."""

    # as the stream would describe it: without the generated columns that `relation.generated` names
    relation: Relation
    partitioned: bool = False  # whether it is the root of partitions
    obstacle: str = ""  # why it cannot be captured, or an empty string
    remedy: str = ""  # what to do about the obstacle
    # whether all that is said here holds once it has REPLICA IDENTITY FULL, which it, or one of its
    # partitions, may lack
    will_be_full: bool = False

    @property
    def name(self) -> TableName:
        """Return schema and table."""
        return self.relation.name


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of `_TABLES`."""

    oid: int
    schema: str
    table: str
    partitioned: bool
    identity: str


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table."""

    name: str
    type_oid: int
    typmod: int
    generated: str
    deterministic: bool
    locale: Locale
    database: Locale

    def collated(self, kind: ColumnType) -> ColumnType:
        """Return the column's type with the collation that sorts it."""
        element = None if kind.element is None else self.collated(kind.element)
        return replace(
            kind,
            element=element,
            deterministic=self.deterministic,
            locale=self.locale,
            database=self.database,
        )


@dataclass(frozen=True, slots=True)
class _Key:
    """A primary key, or the key that an index gives."""

    columns: tuple[str, ...] = ()
    immediate: bool = True
    is_identity: bool = False
    picked: Picked | None = None
    fit: tuple[str, ...] = ()  # of a table without a key: the unique indexes that could give it one


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A partition that holds rows."""

    name: TableName
    kind: str
    identity: ReplicaIdentity
    identity_is_key: bool


Choosing = Callable[[TableName], bool]  # tells whether a table is one of some


class Unkeyed(Enum):
    """Policy for tables without a primary key."""

    REFUSED = "refused"
    ADDED = "added"  # captured where the publication sends neither updates nor deletes
    CHANGED = "changed"
    """Captured with updates and deletes, for which the stream has to bring the old row."""


class Catalogue:
    """Reads the catalogue over a connection in autocommit mode, so that it sees the present."""

    def __init__(
        self,
        connection: Connection,
        unkeyed: Unkeyed = Unkeyed.REFUSED,
        *,
        gives_full: Choosing | None = None,
        sends_stored: bool = False,
        drops: Callable[[TableName, str], bool] = lambda _table, _column: False,
        key_index: Choice = lambda _table: "",
        sends_old: bool = True,
    ) -> None:
        """Read over `connection`.

        Args:
            connection: in autocommit mode.
            unkeyed: what is to be done with tables without a primary key.
            gives_full: tells which tables get REPLICA IDENTITY FULL in any case, where tables get
                it that cannot be captured without; None where no table gets it.
            sends_stored: whether the publication sends generated columns that are stored.
            drops: tells whether a column is left out on purpose.
            key_index: says which index gives a table without a primary key its key.
            sends_old: whether updates or deletes are captured, which have to name old keys.
        """
        self._key_index, self._sends_old = key_index, sends_old
        self._unkeyed = unkeyed
        self.gives_full = gives_full
        self._sends_stored = sends_stored
        self._drops = drops
        self._connection = connection
        self._types = TypeResolver(connection)
        self._streamed: dict[int, tuple[RelationMessage, Relation]] = {}

    def tables(self, oids: Collection[int] | None = None) -> tuple[Table, ...]:
        """List the user's permanent tables by name; partitions are left out for their roots."""
        return steadily(lambda: self._at_once(oids))

    def names(self) -> dict[int, TableName]:
        """List the same tables by object id, with no more than their names."""
        with source_errors(self._connection, _WHAT):
            return {oid: TableName(*name) for oid, *name in self._fetch(_NAMES, {})}

    def children(self) -> dict[TableName, tuple[TableName, ...]]:
        """List the tables that others inherit from, each with all that do, also indirectly."""
        children_of: dict[TableName, tuple[TableName, ...]] = {}
        with source_errors(self._connection, _WHAT):
            for schema, table, *child in self._fetch(_CHILDREN, {}):
                parent = TableName(schema, table)
                children_of[parent] = (*children_of.get(parent, ()), TableName(*child))
        return children_of

    def table(self, oid: int) -> Table | None:
        """Look up a table as it is now; return None if it is gone or no longer one of `tables`."""
        tables = self.tables([oid])
        return tables[0] if tables else None

    def resolver(
        self, relations: Iterable[Relation]
    ) -> Callable[[RelationMessage], Relation | None]:
        """Return the function by which an assembler finds the relations of these tables.

        It gives None for any other table: the stream also describes partitions, although their
        rows come as their root's. Tables are told apart by oid, and one that was renamed raises
        UncapturableTableError, since its topic has the old name; so does one that came to a
        primary key, or lost it, since its topic has other settings.
        """
        by_oid = {relation.oid: relation for relation in relations}

        def resolve(message: RelationMessage) -> Relation | None:
            before = by_oid.get(message.oid)
            if before is None:
                return None
            relation = self.resolve(message)
            if relation.name != before.name:
                raise UncapturableTableError(
                    f'table {before.name.said} is called "{relation.name}" in the stream',
                    hint="rename it back, or exclude it; a renamed table needs a fresh snapshot",
                )
            if bool(relation.key) != bool(before.key):
                difference = "has a primary key now" if relation.key else "has lost its primary key"
                raise UncapturableTableError(
                    f"table {relation.name.said} {difference}, and its topic is of the other kind",
                    hint="undo it, or exclude the table; or drop the slot with `changelog slot "
                    "drop` and delete the topic: the next start makes both anew",
                )
            return relation

        return resolve

    def resolve(self, message: RelationMessage) -> Relation:
        """Return the relation of the stream's description of a table.

        Columns and types are the message's; the primary key is the catalogue's, since under
        REPLICA IDENTITY FULL the stream flags every column. The same message gives the same
        relation object again.

        Raises UncapturableTableError: the table has lost its primary key or what made it
        capturable, or is gone and its key was never seen; or the stream has generated columns of
        it.
        """
        name = TableName(message.schema, message.table)
        cached = self._streamed.get(message.oid)
        if cached is not None and cached[0] == message:
            return cached[1]
        found_tables = self.tables([message.oid])
        with source_errors(self._connection, f"cannot read the table {name.said}"):
            types = self._types.resolve((c.type_oid, c.typmod) for c in message.columns)
        before = cached[1] if cached is not None else None
        key = before.key if before is not None else ()
        generated = before.generated if before is not None else ()
        computed = before.computed if before is not None else ()
        key_index = before.key_index if before is not None else None
        identity = message.identity
        names = [column.name for column in message.columns]
        types_by_name = (
            {} if before is None else {column.name: column.type for column in before.columns}
        )
        if found_tables:
            check_capturable(found_tables)
            there = found_tables[0].relation
            key, identity = there.key, there.identity
            generated, computed = there.generated, there.computed
            types_by_name = {column.name: column.type for column in there.columns}
            key_index = there.key_index
            _check_generated(
                name, [generated_name for generated_name in names if generated_name in generated]
            )
        has_key = bool(key) or (bool(found_tables) and self._unkeyed is not Unkeyed.REFUSED)
        if not has_key or not set(key) <= set(names):
            raise UncapturableTableError(
                f"table {name.said}: its key is not among the columns that it had",
                hint="the table changed after these rows were written: take a new snapshot",
            )
        flagged = {column.name for column in message.columns if column.is_key}
        by_key = message.identity is ReplicaIdentity.DEFAULT or (
            message.identity is ReplicaIdentity.INDEX and self._sends_old
        )
        if by_key and key and flagged not in ({*key}, set()):
            raise UncapturableTableError(
                f"table {name.said}: its key was {sorted(flagged)} when these rows were "
                f"written, and is {list(key)}",
                hint="the table changed after these rows were written: take a new snapshot",
            )
        columns = tuple(
            Column(column_name, _collated_as(kind, types_by_name.get(column_name)))
            for column_name, kind in zip(names, types, strict=True)
        )
        relation = Relation(
            message.oid, name, columns, key, identity, generated, computed, key_index
        )
        self._streamed[message.oid] = (message, relation)
        return relation

    def older_values(
        self, relation: Relation, columns: Iterable[str]
    ) -> dict[str, Field | Unknown]:
        """Return the values that older rows have in some new columns.

        ADD COLUMN with a default gives old rows a value without a word in the stream. A constant
        is in `attmissingval`, until the table is rewritten. Any other default is computed for
        each row by a rewrite of the table; one that was set later, and gives old rows nothing,
        looks the same. Such a column, and one that is gone again, is unknown.
        """
        with source_errors(self._connection, f"cannot read the table {relation.name.said}"):
            rows = self._fetch(_OLDER, {"oids": [relation.oid], "names": list(columns)})
        return {name: _older_value([row[1:] for row in rows if row[0] == name]) for name in columns}

    def uncaptured(self, table_filter: TableFilter) -> tuple[str, ...]:
        """Return a line for each kind of uncaptured object; see `uncaptured`."""
        return uncaptured(self._connection, table_filter)

    def unnoticed(self, tables: Iterable[Table]) -> tuple[str, ...]:
        """Return the warnings about changes of tables that no look notices; see `unnoticed`."""
        return unnoticed(self._connection, [table.relation for table in tables])

    def _at_once(self, oids: Collection[int] | None) -> tuple[Table, ...]:
        """Read in one snapshot: a table that is dropped meanwhile has its key to the end."""
        with source_errors(self._connection, _WHAT):
            self._execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                return self._read(oids)
            finally:
                if not self._connection.closed:
                    self._execute("ROLLBACK")

    def _execute(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def _read(self, oids: Collection[int] | None) -> tuple[Table, ...]:
        wanted_oids = None if oids is None else list(oids)
        rows = [_Row(*row) for row in self._fetch(_TABLES, {"oids": wanted_oids})]
        oids = [row.oid for row in rows]
        columns: dict[int, list[_Column]] = {}
        for owner, name, oid, typmod, generated, exact, *texts in self._fetch(_COLUMNS, (oids,)):
            locales = Locale(*texts[:2]), Locale(*texts[2:])
            column = _Column(name, oid, typmod, generated, exact, *locales)
            columns.setdefault(owner, []).append(column)
        keys: dict[int, _Key] = {}
        for owner, name, immediate, is_identity in self._fetch(_KEYS, (oids,)):
            before = keys.get(owner, _Key())
            keys[owner] = _Key((*before.columns, name), immediate, is_identity)
        primary = dict(keys)
        keys |= self._chosen_keys(rows, primary)
        leaves: dict[int, list[_Leaf]] = {}
        roots = [row.oid for row in rows if row.partitioned]
        for root, schema, table, kind, identity, is_key in self._fetch(_LEAVES, {"oids": roots}):
            leaf = _Leaf(TableName(schema, table), kind, ReplicaIdentity(identity), is_key)
            leaves.setdefault(root, []).append(leaf)

        def judged(row: _Row, keys: Mapping[int, _Key], leaves: Sequence[_Leaf]) -> Table:
            return self._table(row, columns.get(row.oid, []), keys.get(row.oid, _Key()), leaves)

        judgements = [judged(row, keys, leaves.get(row.oid, [])) for row in rows]
        if self.gives_full is None:
            return tuple(judgements)
        full = [replace(row, identity=ReplicaIdentity.FULL.value) for row in rows]
        keys = primary | self._chosen_keys(full, primary)
        for place, row in enumerate(full):
            now = judgements[place]
            own = [replace(leaf, identity=ReplicaIdentity.FULL) for leaf in leaves.get(row.oid, [])]
            then = replace(judged(row, keys, own), will_be_full=True)
            index = now.relation.key_index
            if index is not None and not then.relation.key:
                then = replace(
                    then,
                    obstacle=f'has its key by its replica identity, the index "{index.name}", '
                    "which REPLICA IDENTITY FULL takes from it",
                    remedy=_by_index(now.name, (index.name,)),
                )
            if self.gives_full(now.name) or (now.obstacle and not then.obstacle):
                judgements[place] = then
        return tuple(judgements)

    def _table(
        self, row: _Row, columns: Sequence[_Column], key: _Key, leaves: Sequence[_Leaf]
    ) -> Table:
        sent = [column for column in columns if not column.generated or self._sends(column)]
        types = self._types.resolve((column.type_oid, column.typmod) for column in sent)
        built = tuple(
            Column(column.name, column.collated(kind))
            for column, kind in zip(sent, types, strict=True)
        )
        generated = [column for column in columns if column.generated and not self._sends(column)]
        computed = tuple(column.name for column in sent if column.generated)
        identity = ReplicaIdentity(row.identity)
        name = TableName(row.schema, row.table)
        if key.picked is not None:
            obstacle, remedy = self._index_obstacle(row, key.picked, sent, identity, leaves)
        elif key.columns or self._unkeyed is Unkeyed.REFUSED:
            names = [column.name for column in sent]
            ways = self._ways(name, key.fit, identity, partitioned=row.partitioned)
            obstacle, remedy = _obstacle(name, key, names, identity, leaves, ways=ways)
        else:
            obstacle, remedy = self._unkeyed_obstacle(row, identity, leaves, key.fit)
        if row.partitioned and self._connection.server_version < PUBLISHES_PARTITIONED:
            version = self._connection.server_version // 10_000
            obstacle = f"is partitioned, and PostgreSQL {version} publishes no such table"
            remedy = f"{_EXCLUDE}: PostgreSQL {PUBLISHES_PARTITIONED // 10_000} and newer do"
        if not obstacle:
            obstacle, remedy = self._generated_obstacle(name, generated, identity)
        if row.partitioned or identity is ReplicaIdentity.INDEX:
            # Of a partitioned table only the key of an old row can be relied on: each partition
            # has its own identity. An identity index is the primary key, or else an obstacle.
            identity = ReplicaIdentity.DEFAULT
        keys = () if obstacle else key.columns
        lacking = tuple(column.name for column in generated)
        index = key.picked.index if key.picked is not None and keys else None
        relation = Relation(
            row.oid, name, built, keys, identity, lacking, computed, index.key if index else None
        )
        return Table(relation, row.partitioned, obstacle, remedy)

    def _sends(self, column: _Column) -> bool:
        return self._sends_stored and column.generated == _STORED

    def _generated_obstacle(
        self, table: TableName, generated: Sequence[_Column], identity: ReplicaIdentity
    ) -> tuple[str, str]:
        """Return the obstacle that unsent generated columns are, and the remedy."""
        virtual = [column.name for column in generated if column.generated != _STORED]
        if virtual and identity is ReplicaIdentity.FULL:
            reason = f"has REPLICA IDENTITY FULL and the virtual generated columns {virtual}"
            return f"{reason}: published, its updates and deletes would fail", _restore(table)
        lacking = [column.name for column in generated if not self._drops(table, column.name)]
        if not lacking:
            return "", ""
        ways = [left_out(table, lacking)]
        if self._connection.server_version >= SENDS_STORED and not virtual:
            ways.append("or ALTER PUBLICATION … SET (publish_generated_columns = stored)")
        reason = f"has generated columns that the stream does not bring: {', '.join(lacking)}"
        return reason, ", ".join(ways)

    def _chosen_keys(self, rows: Sequence[_Row], keys: Mapping[int, _Key]) -> dict[int, _Key]:
        """Return the keys of the tables for which an index was chosen, or could be.

        An index that is the replica identity of a table without a primary key is its key: by it the
        stream names old rows. Beside a primary key it is one where somebody names it.
        """
        index_names = {row.oid: self._wanted_index(row, has_key=row.oid in keys) for row in rows}
        asked_oids = [
            oid for oid, name in index_names.items() if oid not in keys or name not in {"", AUTO}
        ]
        beside = [
            row.oid
            for row in rows
            if row.oid in keys
            and row.oid not in asked_oids
            and row.identity == ReplicaIdentity.INDEX.value
        ]
        indexes: dict[int, list[Index]] = {oid: [] for oid in asked_oids}
        looked = [*asked_oids, *beside]
        for owner, *index in self._fetch(INDEXES, (looked,)) if looked else ():
            indexes.setdefault(owner, []).append(Index(*index))
        chosen = {
            oid: replace(
                keys[oid],
                fit=tuple(
                    index.name
                    for index in indexes.get(oid, ())
                    if index.is_identity and not index.fault
                ),
            )
            for oid in beside
        }
        for oid in asked_oids:
            if not index_names[oid]:
                chosen[oid] = _Key(
                    fit=tuple(index.name for index in indexes[oid] if not index.fault)
                )
                continue
            picked = pick(index_names[oid], indexes[oid])
            is_auto = index_names[oid] == AUTO and not (picked.index or picked.fit)
            if is_auto and self._unkeyed is not Unkeyed.REFUSED:
                chosen[oid] = _Key()  # captured without a key, as is allowed
                continue
            is_beside = oid in keys and not (picked.index and picked.index.is_identity)
            chosen[oid] = replace(keys[oid], picked=HAS_KEY) if is_beside else _key_of(picked)
        return chosen

    def _wanted_index(self, row: _Row, *, has_key: bool) -> str:
        named = self._key_index(TableName(row.schema, row.table))
        by_identity = row.identity == ReplicaIdentity.INDEX.value and not has_key
        return named or (AUTO if by_identity and self._unkeyed is not Unkeyed.ADDED else "")

    def _index_obstacle(
        self,
        row: _Row,
        picked: Picked,
        sent: Sequence[_Column],
        identity: ReplicaIdentity,
        leaves: Sequence[_Leaf],
    ) -> tuple[str, str]:
        """Return the obstacle to a key from an index and the remedy, or two empty strings."""
        name = TableName(row.schema, row.table)
        if picked.index is None:
            by_index = self._key_index(name) != AUTO or bool(picked.fit)
            ways = self._ways(
                name, picked.fit, identity, partitioned=row.partitioned, by_index=by_index
            )
            return picked.obstacle, picked.remedy or ways
        if not {*picked.index.columns} <= {column.name for column in sent}:
            return "has a generated column in its key", _EXCLUDE
        foreign = [leaf.name for leaf in leaves if leaf.kind != "r"]
        if foreign:
            return f'has the partition "{foreign[0]}", which is a foreign table', _EXCLUDE
        if not self._sends_old:
            return "", ""
        return identity_obstacle(name, picked.index, identity, partitioned=row.partitioned)

    def _unkeyed_obstacle(
        self, row: _Row, identity: ReplicaIdentity, leaves: Sequence[_Leaf], fit: Sequence[str]
    ) -> tuple[str, str]:
        foreign = [leaf.name for leaf in leaves if leaf.kind != "r"]
        if foreign:
            return f'has the partition "{foreign[0]}", which is a foreign table', _EXCLUDE
        if self._unkeyed is Unkeyed.ADDED:
            return "", ""
        name = TableName(row.schema, row.table)
        if row.partitioned:
            # Each partition has an identity of its own, also one that is attached tomorrow.
            return (
                "has no primary key and is partitioned: which old rows come is not sure",
                f"add a primary key, or {INSERTS}",
            )
        if identity is not ReplicaIdentity.FULL:
            reason = "has no primary key and not REPLICA IDENTITY FULL: its updates would fail"
            ways = ["--replica-identity full"]
            ways += [f"{_by_index(name, fit)} --replica-identity full"] if fit else []
            return reason, ", or ".join([*ways, INSERTS])
        return "", ""

    def _ways(
        self,
        table: TableName,
        fit: Sequence[str],
        identity: ReplicaIdentity,
        *,
        partitioned: bool,
        by_index: bool = False,
    ) -> str:
        """Return the options that capture a table without a key, or leave it out.

        `fit` are indexes that can give its key. With `by_index` one is to give it: that goes before
        `--allow-unkeyed`.
        """
        has_old = identity is ReplicaIdentity.FULL or not self._sends_old
        more = "" if has_old else " --replica-identity full"
        ways = ["add a primary key"]
        # Which old rows come of a partitioned table is not sure.
        if not (partitioned and self._sends_old):
            ways += [_by_index(table, fit) + more] if fit else []
            is_refused = self._unkeyed is Unkeyed.REFUSED and not by_index
            ways += [f"--allow-unkeyed{more}"] if is_refused else []
        return ", or ".join([*ways, f"--exclude {pasted(quoted(*table))}"])

    def _fetch(self, query: str, arguments: object) -> list[tuple]:  # type: ignore[type-arg]
        with self._connection.cursor() as cursor:
            own_query = for_version(query, self._connection.server_version)
            cursor.execute(own_query, arguments)  # type: ignore[arg-type]
            return cursor.fetchall()


def _collated_as(kind: ColumnType, seen: ColumnType | None) -> ColumnType:
    """Return a type with the collation of another type: the stream does not tell it."""
    if seen is None:
        return kind
    element = None if kind.element is None else _collated_as(kind.element, seen.element)
    return replace(
        kind,
        element=element,
        deterministic=seen.deterministic,
        locale=seen.locale,
        database=seen.database,
    )


def _key_of(picked: Picked) -> _Key:
    if picked.index is None:
        return _Key(picked=picked)
    return _Key(tuple(picked.index.columns), picked=picked)


def _older_value(constant_rows: Sequence[tuple[str | None, bool, str]]) -> Field | Unknown:
    """Judge a column by its constant, whether it has a default, and its type's delimiter.

    There is one of each in the table and in each of its partitions.
    """
    constants = {(text, delimiter) for text, _, delimiter in constant_rows if text is not None}
    if len(constants) == 1:
        # PostgreSQL keeps it as an array of one element.
        ((text, delimiter),) = constants
        items = parse_array(text.encode("utf-8"), delimiter.encode("utf-8"))
        return items[0] if items else UNKNOWN
    if constants or not constant_rows or any(has_default for _, has_default, _ in constant_rows):
        return UNKNOWN
    return None


_EXCLUDE = "exclude the table"
NO_KEY = "has no primary key"
"""The obstacle to capturing a table for which no option names another key, or allows none."""


def _obstacle(
    name: TableName,
    key: _Key,
    columns: Sequence[str],
    identity: ReplicaIdentity,
    leaves: Sequence[_Leaf],
    *,
    ways: str,
) -> tuple[str, str]:
    """Return the obstacle to capturing a table and the remedy, or two empty strings."""
    other_index = identity is ReplicaIdentity.INDEX and not key.is_identity
    problems = [
        (not key.columns, NO_KEY, ways),
        (
            not set(key.columns) <= set(columns),
            "has a generated column in its primary key",
            _EXCLUDE,
        ),
        # With a deferrable key rows may swap keys: the tombstone of one would hide the other.
        (
            not key.immediate,
            "has a deferrable primary key",
            "make the key NOT DEFERRABLE, or exclude the table",
        ),
        (
            identity is ReplicaIdentity.NOTHING,
            "has REPLICA IDENTITY NOTHING: its updates and deletes would fail",
            _restore(name),
        ),
        (
            other_index,
            "has an index other than its primary key as REPLICA IDENTITY",
            ", or ".join([_restore(name), *(_by_index(name, [index]) for index in key.fit)]),
        ),
    ]
    problem = next(((text, remedy) for bad, text, remedy in problems if bad), None)
    return problem or next(filter(None, map(_leaf_obstacle, leaves)), ("", ""))


def _by_index(table: TableName, fit: Sequence[str]) -> str:
    """Return the option that gives a table its key by a unique index."""
    return f"--key-index {pasted(f'{quoted(*table)}={fit[0]}')}"


def _restore(table: TableName) -> str:
    return f"ALTER TABLE {quoted_name(table)} REPLICA IDENTITY DEFAULT"


def _leaf_obstacle(leaf: _Leaf) -> tuple[str, str] | None:
    if leaf.kind != "r":
        return f'has the partition "{leaf.name}", which is a foreign table', _EXCLUDE
    other_index = leaf.identity is ReplicaIdentity.INDEX and not leaf.identity_is_key
    if leaf.identity is ReplicaIdentity.NOTHING or other_index:
        return f'has the partition "{leaf.name}" with another REPLICA IDENTITY', _restore(leaf.name)
    return None


def _check_generated(name: TableName, sent: Sequence[str]) -> None:
    """Refuse columns in the stream that are generated now: the rows of a snapshot lack them."""
    if sent:
        raise UncapturableTableError(
            f"table {name.said}: its columns {list(sent)} are generated now, and were not when "
            "these rows were written",
            hint="the table changed after these rows were written: take a new snapshot",
        )


def select_tables(tables: Iterable[Table], table_filter: TableFilter) -> tuple[Table, ...]:
    """Take the wanted tables.

    Raises UncapturableTableError: tables that the filter names in full are not among them.
    """
    there = {table.name: table for table in tables}
    missing = [name for name in table_filter.named if name not in there]
    if missing:
        raise no_such(missing)
    return tuple(table for name, table in there.items() if table_filter.wants(name))


def no_such(missing: Iterable[TableName]) -> UncapturableTableError:
    """Return the error of tables that are named in full and are not there."""
    return UncapturableTableError(
        "no such table: " + ", ".join(f'"{name}"' for name in missing),
        hint="views, foreign, temporary and unlogged tables are not captured, and partitions "
        "only through their root; names are case-sensitive",
    )


def check_capturable(tables: Iterable[Table]) -> None:
    """Check that each table can be captured.

    Raises UncapturableTableError: one cannot; names all that cannot, each with its reason.
    """
    bad = [table for table in tables if table.obstacle]
    if bad:
        raise UncapturableTableError(
            "; ".join(f"table {table.name.said} {table.obstacle}" for table in bad),
            hint="; ".join(dict.fromkeys(table.remedy for table in bad)),
        )
