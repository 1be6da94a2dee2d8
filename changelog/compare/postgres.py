"""A table or query of PostgreSQL as a side of a comparison: the source, or a copy.

The server computes the digests, in one statement that may use parallel workers, or block by block
if a rate is given. All transactions are read-only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from threading import Event
from typing import Any

import psycopg2
from psycopg2 import errorcodes, extensions, sql
from psycopg2.errors import LockNotAvailable, UntranslatableCharacter

from changelog.compare.forms import Native, TypeFamily, is_sent
from changelog.compare.plan import ComparedColumn, ComparePlan
from changelog.compare.postgres_texts import expression, row, sent, text_of
from changelog.compare.side import SUM_BITS, Digest, Key, Moment, SideRow
from changelog.compare.texts import RAW, row_text
from changelog.contract.base.errors import ConfigurationError, SinkError, SourceError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.secret import redacted
from changelog.native.libpq import check_single
from changelog.postgres.connection import parts_of
from changelog.postgres.watched import cut, watched
from changelog.source.connect.connect import connect, source_error

_OLDEST_VERSION = 100_000
_BLOCKS_VERSION = 140_000  # the first that reads a range of blocks without the rest of the table
_SILENCE_S = 60.0
_CANCEL_S = 5.0
"""How long a server may take to end a statement that was interrupted."""
_PART = re.compile(r'"(?:[^"]|"")*"|[^".]+')
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
_FETCHED = 5_000
_FIRST_BLOCKS = 10
"""With a rate: blocks that are read first, to learn how many rows one has."""
_KEYS_AT_ONCE = 500
_SETTINGS = (
    "SET jit = off",
    "SET work_mem = '64MB'",
    "SET statement_timeout = 0",
    "SET lock_timeout = '30s'",
    # A copy that has intervals as text most likely took it from the default style.
    "SET intervalstyle = 'postgres'",
    # Rows that a policy hides would count as missing; with this such a read is an error.
    "SET row_security = off",
)
_WRITING = (
    "SET LOCAL intervalstyle = 'postgres'",
    "SET LOCAL idle_in_transaction_session_timeout = '60s'",
    "SET LOCAL synchronous_commit = on",
    "SET LOCAL row_security = off",
    # Otherwise a null in an array is read as the word, and a part of a document is no XML.
    "SET LOCAL array_nulls = on",
    "SET LOCAL xmloption = content",
)
# Writers of the copy queue behind a lock that is waited for: each attempt is short.
_TABLE_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '200ms'"
_ROW_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '2s'"
_LOCK_PATIENCE_S = 30.0
_RIGHTS_TO_READ = "GRANT SELECT on it, and USAGE on its schema, to the role"
_RIGHTS_TO_WRITE = "GRANT INSERT, UPDATE, DELETE on the copy to the role, or connect as its owner"
Written = tuple[SideRow, tuple[str | None, ...]]
"""A row, and the texts of its columns as PostgreSQL's input functions take them, if asked for."""
_KINDS = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), TypeFamily.INTEGER),
    "numeric": TypeFamily.NUMERIC,
    "float4": TypeFamily.REAL,
    "float8": TypeFamily.DOUBLE,
    **dict.fromkeys(("text", "varchar", "name"), TypeFamily.TEXT),
    "bpchar": TypeFamily.PADDED,
    "bool": TypeFamily.BOOLEAN,
    "bytea": TypeFamily.BYTES,
    "uuid": TypeFamily.UUID,
    "json": TypeFamily.JSON,
    "jsonb": TypeFamily.JSON,
    "date": TypeFamily.DATE,
    "time": TypeFamily.TIME,
    "timestamp": TypeFamily.TIMESTAMP,
    "timestamptz": TypeFamily.TIMESTAMP,
    "interval": TypeFamily.INTERVAL,
}
_INTEGERS = {
    "smallint": range(-(1 << 15), 1 << 15),
    "integer": range(-(1 << 31), 1 << 31),
    "bigint": range(-(1 << 63), 1 << 63),
    "oid": range(1 << 32),
}
_NUMERIC = re.compile(r"-?([0-9]+(\.[0-9]*)?|Infinity)|NaN")
_TYPED = {
    *(
        TypeFamily.INTEGER,
        TypeFamily.NUMERIC,
        TypeFamily.TEXT,
        TypeFamily.PADDED,
        TypeFamily.UUID,
        TypeFamily.BOOLEAN,
    ),
    *(TypeFamily.BYTES, TypeFamily.DATE, TypeFamily.TIMESTAMP),
}
_INDEXED = {
    *((TypeFamily.NUMERIC, TypeFamily.INTEGER), (TypeFamily.TIMESTAMP, TypeFamily.DATE)),
    *(
        (TypeFamily.INTEGER, TypeFamily.TEXT),
        (TypeFamily.TEXT, TypeFamily.INTEGER),
        (TypeFamily.DATE, TypeFamily.TEXT),
    ),
}
"""Pairs of a key's form and a column's type of another family whose index finds the values.

For pairs that are not here the texts of all rows are compared: a float's canonical text is its
bits, not a number, and blanks at the end of a text matter.
"""
_TYPES = """
WITH RECURSIVE up AS (
  SELECT oid AS start, oid, typtype, typbasetype FROM pg_type WHERE oid = ANY ({oids})
  UNION ALL
  SELECT up.start, b.oid, b.typtype, b.typbasetype FROM up
  JOIN pg_type b ON up.typtype = 'd' AND b.oid = up.typbasetype
)
SELECT up.start::int8, t.oid::int8, n.nspname = 'pg_catalog', t.typname,
       CASE WHEN t.typcategory = 'A' AND t.typlen = -1 THEN t.typelem::int8 ELSE 0 END
FROM up JOIN pg_type t ON t.oid = up.oid JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE up.typtype <> 'd'
"""
_MOMENT = """
SELECT CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0')
            ELSE pg_current_wal_lsn() END::text, clock_timestamp()
"""
_RELATION = """
SELECT c.oid::int8, c.relkind::text,
       array(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(n, place)
             JOIN pg_attribute a ON a.attnum = k.n
             WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND i.indisprimary ORDER BY k.place),
       has_schema_privilege(c.relnamespace, 'USAGE')
FROM pg_class c WHERE c.oid = to_regclass({name})
"""
_LEAVES = """
WITH RECURSIVE tree AS (
  SELECT {oid}::oid AS oid
  UNION ALL SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
)
SELECT c.oid::regclass::text, c.relkind::text,
       pg_relation_size(c.oid) / current_setting('block_size')::int8
FROM tree JOIN pg_class c ON c.oid = tree.oid WHERE c.relkind IN ('r', 'm', 'f')
"""
_IDENTITY = """
SELECT current_database()::text, n.nspname::text, c.relname::text
FROM (SELECT {oid}::oid AS oid) AS own
LEFT JOIN pg_class c USING (oid) LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
"""
_MAY_KNOW_SYSTEM = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
_DATABASE = """
SELECT pg_postmaster_start_time(), oid::int8 FROM pg_database WHERE datname = current_database()
"""
_LOCKED = """
WITH RECURSIVE up AS (
  SELECT {oid}::oid AS oid
  UNION SELECT i.inhparent FROM up JOIN pg_inherits i ON i.inhrelid = up.oid
), down AS (
  SELECT {oid}::oid AS oid
  UNION SELECT i.inhrelid FROM down JOIN pg_inherits i ON i.inhparent = down.oid
)
SELECT 1 FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'
AND relation IN (SELECT oid FROM up UNION SELECT oid FROM down)
"""
_HOLDER = """
SELECT a.pid,
       concat_ws(', ', coalesce(nullif(a.application_name, ''), a.backend_type),
                 'user ' || a.usename, a.state),
       coalesce(' for ' || extract(epoch FROM clock_timestamp() - a.xact_start)::int8 || ' s', '')
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.granted AND l.locktype = 'relation' AND l.relation IN (
  SELECT {oid}::oid UNION SELECT inhrelid FROM pg_inherits WHERE inhparent = {oid}::oid)
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND l.mode NOT IN ('AccessShareLock', 'RowShareLock') ORDER BY a.xact_start LIMIT 1
"""
_GENERATED_VERSION = 120_000
_HASH_VERSION = 140_000
_HASHED = """
SELECT hash_record_extended(ROW(record_send(ROW(
  7::bigint, 1.5::numeric, 0.1::float4, -0.1::float8, 'é'::text, '\\x0102'::bytea, true,
  date '2024-02-29', time '01:02:03.000004', timestamp '2024-02-29 01:02:03', 'NaN'::numeric,
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, '{"a": [1.0, null, "b"]}'::jsonb))), 1)
"""
_COMPUTED = """
SELECT attname::text, CASE WHEN attidentity = 'a' THEN 'identity' ELSE 'generated' END
FROM pg_attribute
WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped AND (attidentity = 'a' OR {generated})
"""
_CASCADE = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}
_CASCADES = """
WITH RECURSIVE reached AS (
  SELECT {oid}::oid AS oid, ''::text AS action
  UNION
  SELECT k.conrelid, k.confdeltype::text FROM reached
  JOIN pg_constraint k ON k.confrelid = reached.oid AND k.contype = 'f'
  WHERE reached.action IN ('', 'c') AND k.confdeltype IN ('c', 'n', 'd')
)
SELECT oid::regclass::text, action FROM reached WHERE action <> '' ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class ComparedRelation:
    """A table or view by name, or a query."""

    table: str = ""
    query: str = ""


class PostgresSide:
    """A table, view or query of PostgreSQL, read over one connection."""

    def __init__(self, dsn: str, relation: ComparedRelation, *, of: str, rate: float = 0.0) -> None:
        """Connect, and read the columns and the key.

        `of` is "source" or "target"; `rate` is the most rows to read a second, 0 for no limit.

        Raises:
            UnavailableSourceError: no server answers.
            ConfigurationError: the address cannot be used, the server refuses, there is no such
                table, it may not be read, or the query is invalid.
        """
        self.of = of
        self._dsn = dsn
        self._rate, self._is_source = rate, of == "source"
        self._parts = parts_of(
            dsn,
            named=f"the connection string of the {of}",
            example="postgresql://user@host:5432/database",
        )
        self._interrupted = Event()
        self._patience_ends = 0.0
        self._rows_read = 0
        self._connection = connect(dsn, application_name="changelog verify")
        try:
            self._prepare(relation)
        except BaseException:
            self.close()
            raise

    def _prepare(self, relation: ComparedRelation) -> None:
        if self._connection.server_version < _OLDEST_VERSION:
            raise ConfigurationError(f"the {self.of} is older than PostgreSQL 10")
        for setting in _SETTINGS:
            self._run(setting)
        self._kind, self._oid, self.key = "", 0, ()
        if relation.query:
            text = relation.query.strip().rstrip(";").rstrip()
            with self._errors("the query cannot be run", is_usage=True):
                check_single(self._connection, f"SELECT * FROM (\n{text}\n) AS q")
            self._from: sql.Composable = sql.SQL("(\n{}\n) AS q").format(_verbatim(text))
            shown = "a query"
        else:
            self._from, shown = self._table(relation.table), relation.table
        self._columns = self._described(shown)
        host = self._parts.get("host", "localhost")
        self.opened = self.moment()
        self.place = redacted(f"{shown} of {self._parts.get('dbname', 'postgres')} at {host}")

    def _table(self, name: str) -> sql.Composable:
        parts = _name_parts(name)
        quoted = sql.Identifier(*parts)
        rows = self._run(
            sql.SQL(_RELATION).format(name=sql.Literal(quoted.as_string(self._connection)))
        )
        if not rows:
            raise ConfigurationError(
                f'the {self.of} has no table "{name}"',
                hint="schema.table; without a schema it is one of public",
            )
        self._oid, self._kind, key, _ = rows[0]
        self.key = tuple(key)
        return quoted

    def _described(self, shown: str) -> dict[str, Native]:
        query = sql.SQL("SELECT * FROM {} LIMIT 0").format(self._from)
        failure = f"{shown} of the {self.of} cannot be read"
        with self._errors(failure, is_usage=True), self._cursor() as cursor:
            cursor.execute(query)
            described = [(column.name, column.type_code) for column in cursor.description or ()]
        names = [name for name, _ in described]
        if len({*names}) < len(names):
            raise ConfigurationError(f"the query of the {self.of} has two columns of one name")
        types = self._types({code for _, code in described})
        return {name: types[code] for name, code in described}

    def _types(self, oids: set[int]) -> dict[int, Native]:
        if not oids:
            return {}
        listed = sql.SQL("ARRAY[{}]::oid[]").format(sql.SQL(", ").join(map(sql.Literal, oids)))
        rows = self._run(sql.SQL(_TYPES).format(oids=listed))
        elements = self._types({row[4] for row in rows if row[4]})
        types = {}
        for start, oid, is_builtin, name, element in rows:
            ((shown,),) = self._run(sql.SQL("SELECT format_type({}, -1)").format(sql.Literal(oid)))
            if element and not elements[element].is_list:
                inner = elements[element]
                types[start] = Native(shown, inner.kind, is_list=True, zoned=inner.zoned)
            else:
                kind = _KINDS.get(name, TypeFamily.PLAIN) if is_builtin else TypeFamily.PLAIN
                types[start] = Native(shown, kind, zoned=name == "timestamptz")
        return types

    def columns(self) -> Mapping[str, Native]:
        """Return the columns of the table or query."""
        return self._columns

    def estimate(self) -> int:
        """Return the server's estimate of the number of rows."""
        query = sql.SQL("EXPLAIN (FORMAT JSON) SELECT 1 FROM {}").format(self._from)
        ((plan,),) = self._run(query)
        return int(plan[0]["Plan"]["Plan Rows"])

    def moment(self) -> Moment:
        """Return the end of the server's WAL, or how much of it a standby has replayed."""
        ((lsn, at),) = self._run(_MOMENT)
        return Moment(Lsn.parse(lsn), at)

    def writer(self, key: Key) -> str:  # noqa: ARG002 - of any key
        """Return an empty text: a table does not tell who wrote a row."""
        return ""

    def notes(self) -> tuple[str, ...]:
        """Return a note if the source is a standby, which may itself lag."""
        if not self._is_source:
            return ()
        ((is_standby,),) = self._run("SELECT pg_is_in_recovery()")
        return ("the source is a standby: its own lag counts too",) if is_standby else ()

    def identity(self) -> Mapping[str, str]:
        """Return cluster, database and table; the cluster only if the role may know it."""
        ((database, schema, table),) = self._run(
            sql.SQL(_IDENTITY).format(oid=sql.Literal(self._oid))
        )
        names = {"database": database, "schema": schema, "table": table}
        names = {name: text for name, text in names.items() if text is not None}
        ((may_know,),) = self._run(
            "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
        )
        if not may_know:
            return names
        ((system_id,),) = self._run("SELECT system_identifier::text FROM pg_control_system()")
        return {"system_id": system_id, **names}

    @property
    def server_version(self) -> str:
        """Return the version of the server, as it tells it."""
        return self._connection.get_parameter_status("server_version") or ""

    def bind(self, plan: ComparePlan) -> None:
        """Take the plan of the comparison."""
        self._plan = plan
        version = self._connection.server_version

        def canonical(column: ComparedColumn) -> sql.Composable:
            return expression(column.form, self._native(column), self._name(column), version)

        self._key = [canonical(column) for column in plan.key]
        members = [canonical(column) for column in plan.columns]
        self._digest = self._hash(plan) if plan.hashes else self._sixty_four_bits(row(members))
        self._texts = [
            text_of(value, self._name(column))
            for value, column in zip(members, plan.columns, strict=True)
        ]
        self._key_row = row(self._key)
        self._bucket = self._bucket_of(plan)

    def _native(self, column: ComparedColumn) -> Native:
        return column.native if self._is_source else column.target_native

    def _name(self, column: ComparedColumn) -> sql.Composable:
        return sql.Identifier(column.name if self._is_source else column.target)

    def _md5(self, text: sql.Composable) -> sql.Composable:
        encoding = self._connection.get_parameter_status("server_encoding")
        plain = "md5({})" if encoding == "UTF8" else "md5(convert_to({}, 'UTF8'))"
        return sql.SQL(plain).format(text)

    def _sixty_four_bits(self, text: sql.Composable) -> sql.Composable:
        return sql.SQL("('x' || {})::bit(64)::bigint").format(self._md5(text))

    def _hash(self, plan: ComparePlan) -> sql.Composable:
        """Return the SQL of 64 bits of PostgreSQL's hash of the bytes that it sends of a row.

        The hash of a record adds up those of its columns, and that of a column may have but 32 bits
        or take different values for one, so the hash is of one column that has all bytes.
        """
        version = self._connection.server_version
        members = [
            sent(
                self._name(column),
                column.form,
                self._native(column),
                version,
                as_text=not is_sent(column.form, column.native, column.target_native),
            )
            for column in plan.columns
        ]
        return sql.SQL("hash_record_extended(ROW(record_send(ROW({}))), 1)").format(
            sql.SQL(", ").join(members)
        )

    def sent_probe(self) -> int | None:
        """Return the server's hash of some values of all types; None if it cannot hash rows."""
        if self._connection.server_version < _HASH_VERSION:
            return None
        ((number,),) = self._run(_HASHED)
        return int(number)

    def _bucket_of(self, plan: ComparePlan) -> sql.Composable:
        count = sql.Literal(plan.buckets.count)
        if not plan.buckets.by_value:
            bits = sql.SQL("('x' || {})::bit(31)::int").format(self._md5(self._key_row))
            return sql.SQL("({} % {})").format(bits, count)
        mixed: sql.Composable = sql.SQL("0")
        for column in plan.key:
            mixed = sql.SQL("(({} * 31 + coalesce({}, 0)::bigint % {}) % {})").format(
                mixed, self._name(column), count, count
            )
        return mixed

    def _is_sampled(self) -> sql.Composable:
        buckets = self._plan.buckets
        if not buckets.sampled:
            return sql.SQL("true")
        count = sql.Literal(buckets.count)
        # In SQL a remainder has the sign of the dividend.
        return sql.SQL(
            "((({b}::bigint * {stride} - {first}) % {count} + {count}) % {count} < {sampled})"
        ).format(
            b=self._bucket,
            stride=sql.Literal(buckets.stride),
            first=sql.Literal(buckets.first),
            count=count,
            sampled=sql.Literal(buckets.sampled),
        )

    def digests(self) -> dict[int, Digest]:
        """Return the digest of each bucket that has rows, as of one snapshot."""
        statement = sql.SQL(
            "SELECT {bucket} AS bucket, count(*), sum({digest}) FROM {source} "
            "WHERE {sample}{blocks} GROUP BY 1"
        )
        totals: dict[int, Digest] = {}
        with self._snapshot() as cursor:
            if self.is_table:
                # The number of buckets is none of the columns' statistics: the planner would expect
                # as many as rows, and sort these.
                cursor.execute("SET LOCAL enable_sort = off")
            for relation, blocks in self._parts_of_table(cursor):
                cursor.execute(
                    statement.format(
                        bucket=self._bucket,
                        digest=self._digest,
                        source=relation,
                        sample=self._is_sampled(),
                        blocks=blocks,
                    )
                )
                for bucket, rows, total in cursor.fetchall():
                    self._rows_read += rows
                    earlier = totals.get(bucket, Digest(0, 0))
                    totals[bucket] = Digest(
                        earlier.rows + rows, (earlier.total + int(total)) % SUM_BITS
                    )
        return totals

    def _parts_of_table(
        self, cursor: extensions.cursor
    ) -> Iterator[tuple[sql.Composable, sql.Composable]]:
        """Yield the relation and block range of each statement, no faster than the rate allows."""
        if not self._rate:
            yield self._from, sql.SQL("")
            return
        if self._kind not in {"r", "m", "p"} or self._connection.server_version < _BLOCKS_VERSION:
            raise ConfigurationError(
                "--rate needs a table of PostgreSQL 14 or newer, which can be read block by block",
                hint="without --rate the source is read in one statement",
            )
        cursor.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        cursor.execute(sql.SQL(_LEAVES).format(oid=sql.Literal(self._oid)))
        for name, kind, blocks in cursor.fetchall():
            relation = sql.SQL("ONLY " + name)
            if kind == "f":  # a foreign table has no blocks here
                yield relation, sql.SQL("")
            first, step = 0, _FIRST_BLOCKS
            while first < blocks:
                began, before = time.monotonic(), self._rows_read
                end = first + step
                yield relation, _blocks(first, None if end >= blocks else end)
                rows = self._rows_read - before
                self._interrupted.wait(max(rows / self._rate - (time.monotonic() - began), 0.0))
                self._check()
                first, step = end, max(int(self._rate * step / max(rows, step)), 1)

    def rows(self, buckets: Sequence[int]) -> Iterator[tuple[Key, int]]:
        """Return keys and digests of the rows of some buckets, as of one snapshot."""
        statement = sql.SQL("SELECT {digest}, {key} FROM {source} WHERE {bucket} IN ({numbers})")
        key = [
            text_of(value, self._name(column))
            for value, column in zip(self._key, self._plan.key, strict=True)
        ]
        with self._snapshot() as cursor:
            cursor.execute(
                statement.format(
                    digest=self._digest,
                    key=sql.SQL(", ").join(key),
                    source=self._from,
                    bucket=self._bucket,
                    numbers=sql.SQL(", ").join(map(sql.Literal, buckets)),
                )
            )
            while batch := cursor.fetchmany(_FETCHED):
                for digest, *texts in batch:
                    yield tuple(texts), digest % SUM_BITS

    def look(self, keys: Sequence[Key]) -> list[SideRow]:
        """Return the rows of some keys as they are now."""
        return [row for row, _ in self._looked(keys, ())]

    def read(self, keys: Sequence[Key]) -> list[Written]:
        """Return the rows of some keys with their columns as PostgreSQL writes and reads them."""
        names = [sql.SQL("{}::text").format(self._name(c)) for c in self._plan.columns]
        return self._looked(keys, names)

    def _looked(self, keys: Sequence[Key], more: Sequence[sql.Composable]) -> list[Written]:
        rows: list[Written] = []
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            rows += self._rows_of(keys[start : start + _KEYS_AT_ONCE], more)
        wanted_keys = set(keys)
        # For PostgreSQL more values may be equal than here: 1.0 and 1.00, or a and A by collation.
        return [row for row in rows if row[0].key in wanted_keys]

    def _rows_of(self, keys: Sequence[Key], more: Sequence[sql.Composable]) -> list[Written]:
        condition = self._condition(keys)
        try:
            return self._rows_where(condition, more) if condition else []
        except SourceError as error:
            if isinstance(error.__cause__, UntranslatableCharacter):
                # A key with a letter that this server's encoding lacks is not among its rows.
                middle = len(keys) // 2
                halves = (keys[:middle], keys[middle:]) if middle else ()
                return [row for some in halves for row in self._rows_of(some, more)]
            if not isinstance(error.__cause__, psycopg2.DataError):
                raise
        # A key of the other side is no value of this type: compare the texts instead.
        return self._rows_where(self._condition_by_text(keys), more)

    def _rows_where(
        self, condition: sql.Composable, more: Sequence[sql.Composable]
    ) -> list[Written]:
        width, end = len(self._plan.key), len(self._texts)
        statement = sql.SQL("SELECT {version}, {texts} FROM {source} WHERE {condition}").format(
            version=sql.SQL("xmin::text" if self._kind in {"r", "p", "m"} else "''"),
            texts=sql.SQL(", ").join([*self._texts, *more]),
            source=self._from,
            condition=condition,
        )
        with self._snapshot() as cursor:
            cursor.execute(statement)
            return [
                (
                    SideRow(tuple(texts[:width]), tuple(texts[width:end]), xmin),
                    tuple(texts[end:]),
                )
                for xmin, *texts in cursor.fetchall()
            ]

    def _condition_by_text(self, keys: Sequence[Key]) -> sql.Composable:
        texts = sql.SQL(", ").join(sql.Literal(row_text(key)) for key in keys)
        return sql.SQL("{} IN ({})").format(self._key_row, texts)

    def _condition(self, keys: Sequence[Key]) -> sql.Composable | None:
        """Return the condition that selects the rows of some keys, or None if no row can match."""
        natives = [self._native(column) for column in self._plan.key]
        is_typed = all(
            native.kind in _TYPED
            and not native.is_list
            and (column.form.kind is native.kind or (column.form.kind, native.kind) in _INDEXED)
            for column, native in zip(self._plan.key, natives, strict=True)
        )
        if not is_typed or any(None in key for key in keys):
            return self._condition_by_text(keys)
        literals = [
            [_literal(*parts) for parts in zip(natives, _whole(key), strict=True)] for key in keys
        ]
        possible = [parts for parts in literals if None not in parts]
        if not possible:
            return None
        names = sql.SQL(", ").join(self._name(column) for column in self._plan.key)
        arrays = (
            sql.SQL("ARRAY[{}]::{}[]").format(
                sql.SQL(", ").join(map(sql.Literal, texts)), _verbatim(_cast_name(native))
            )
            for texts, native in zip(zip(*possible, strict=True), natives, strict=True)
        )
        if len(natives) == 1:
            return sql.SQL("{} = ANY ({})").format(names, next(arrays))
        return sql.SQL("({}) IN (SELECT * FROM unnest({}))").format(
            names, sql.SQL(", ").join(arrays)
        )

    @property
    def is_table(self) -> bool:
        """Return whether it is a table, which can be written."""
        return self._kind in {"r", "p"}

    @property
    def relation(self) -> sql.Composable:
        """Return the table's name in SQL."""
        return self._from

    def exactly(self, key: Key) -> sql.Composable:
        """Return the condition that selects the rows of a key, and of no other that equals it."""
        text = sql.SQL("{} = {}").format(self._key_row, sql.Literal(row_text(key)))
        by_index = self._condition([key])
        return sql.SQL("{} AND {}").format(by_index, text) if by_index else text

    @contextmanager
    def writing(self) -> Iterator[extensions.cursor]:
        """Run the body in a transaction that keeps other writers off the table; readers go on.

        It is committed at the body's end. A server that waits for us too long ends it, so that a
        process that hangs does not keep writers waiting.
        """
        with (
            closing(connect(self._dsn, application_name="changelog verify --repair")) as connection,
            self._errors(f"{self.place} cannot be written", rights=_RIGHTS_TO_WRITE),
            connection.cursor(cursor_factory=extensions.cursor) as cursor,
        ):
            self._lock(cursor)
            yield cursor
            cursor.execute("COMMIT")

    def _lock(self, cursor: extensions.cursor) -> None:
        """Begin a transaction that has locked the table.

        Raises SinkError: others kept it locked for writes; the hint names one of them.
        """
        from tenacity import (  # noqa: PLC0415 - starts slowly, and only repairs lock
            Retrying,
            retry_if_exception_type,
            stop_after_delay,
            wait_random,
        )

        lock = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(self._from)
        try:
            for attempt in Retrying(
                retry=retry_if_exception_type(LockNotAvailable),
                stop=stop_after_delay(_LOCK_PATIENCE_S),
                wait=wait_random(0.2, 1.0),
                before_sleep=lambda _: cursor.execute("ROLLBACK"),
                reraise=True,
            ):
                with attempt:
                    cursor.execute("BEGIN")
                    for setting in (*_WRITING, _TABLE_LOCK_TIMEOUT):
                        cursor.execute(setting)
                    cursor.execute(lock)
        except LockNotAvailable as error:
            raise SinkError(
                f"{self.place} cannot be locked for writing: other transactions have held it for "
                f"{_LOCK_PATIENCE_S:.0f} s",
                hint=self._holder() or "run it again when less is being written",
            ) from error
        cursor.execute(_ROW_LOCK_TIMEOUT)

    def _holder(self) -> str:
        rows = self._run(sql.SQL(_HOLDER).format(oid=sql.Literal(self._oid)))
        for pid, about, duration in rows:
            return (
                f"process {pid} ({about}) has been in a transaction that writes it{duration}: wait "
                "for it, or end it"
            )
        return ""

    @property
    def returned(self) -> sql.Composable:
        """Return the texts of a row's columns, for RETURNING."""
        return sql.SQL(", ").join(self._texts)

    def reads(self, other: PostgresSide) -> bool:
        """Return whether its rows come from the other's table, its parents or its partitions.

        It is so if PostgreSQL locks one of them to plan the query. A table that a function reads,
        or a foreign table, is not seen.
        """
        if self._run(_DATABASE) != other._run(_DATABASE):
            return False
        with self._snapshot() as cursor:
            cursor.execute(sql.SQL("EXPLAIN SELECT * FROM {}").format(self._from))
            cursor.execute(sql.SQL(_LOCKED).format(oid=sql.Literal(other._oid)))
            return bool(cursor.fetchall())

    def computed(self) -> Mapping[str, str]:
        """Return the columns that PostgreSQL computes: `generated`, or always an `identity`."""
        has_generated = self._connection.server_version >= _GENERATED_VERSION
        generated = sql.SQL("attgenerated <> ''" if has_generated else "false")
        return dict(
            self._run(sql.SQL(_COMPUTED).format(oid=sql.Literal(self._oid), generated=generated))
        )

    def cascades(self) -> list[str]:
        """Return the tables whose rows a delete changes by a foreign key, with the action."""
        rows = self._run(sql.SQL(_CASCADES).format(oid=sql.Literal(self._oid)))
        return [f"{table} (ON DELETE {_CASCADE[action]})" for table, action in rows]

    def interrupt(self) -> None:
        """End the work of another thread with an error: its statement, and any later one."""
        if not self._interrupted.is_set():
            self._interrupted.set()
            self._patience_ends = time.monotonic() + _CANCEL_S
        with suppress(psycopg2.Error, OSError):
            if time.monotonic() > self._patience_ends:
                cut(self._connection.fileno())  # the server does not answer
            else:
                self._connection.cancel()

    def close(self) -> None:
        """Close the connection."""
        with suppress(psycopg2.Error):
            self._connection.close()

    def _run(self, statement: str | sql.Composable) -> list[tuple[Any, ...]]:
        with self._errors(f"the {self.of} cannot be read"), self._cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _check(self) -> None:
        if self._interrupted.is_set():
            raise SourceError(f"{self.place}: the comparison was interrupted")

    def _cursor(self) -> extensions.cursor:
        self._check()
        # A digest may take longer than the usual cursor allows; `_snapshot` watches the server.
        return self._connection.cursor(cursor_factory=extensions.cursor)

    @contextmanager
    def _snapshot(self) -> Iterator[extensions.cursor]:
        """Run the body in a transaction that reads one snapshot."""
        settings = {**self._parts, "connect_timeout": "10"}
        with (
            self._errors(f"the {self.of} cannot be read"),
            watched(self._connection, settings, _SILENCE_S),
            self._cursor() as cursor,
        ):
            cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                yield cursor
            finally:
                if not self._connection.closed:
                    cursor.execute("ROLLBACK")

    @contextmanager
    def _errors(
        self, failure: str, *, is_usage: bool = False, rights: str = _RIGHTS_TO_READ
    ) -> Iterator[None]:
        try:
            yield
        except psycopg2.Error as error:
            ours = source_error(error, failure, lost=bool(self._connection.closed))
            code = error.pgcode or ""
            # Missing tables, missing rights and invalid SQL are for the user to correct.
            if code == errorcodes.INSUFFICIENT_PRIVILEGE or (is_usage and code[:2] in {"42", "22"}):
                hint = rights if code == errorcodes.INSUFFICIENT_PRIVILEGE else ours.hint
                hint = hint or "check the table's name and --query"
                if "row-level security" in str(error):
                    hint = (
                        f"a policy hides rows of the {self.of} from this role: compare as the "
                        "table's owner or a role with BYPASSRLS"
                    )
                raise ConfigurationError(str(ours.args[0]), hint=hint) from error
            if code == errorcodes.CHARACTER_NOT_IN_REPERTOIRE:
                ours.hint = (
                    f"a text of the {self.of} is not valid in its encoding: correct it, or name "
                    "the other columns by --columns"
                )
            if "conflict with recovery" in str(error):
                ours.hint = "hot_standby_feedback = on at the standby, or take the primary"
            raise ours from error


def _verbatim(text: str) -> sql.Composable:
    return sql.SQL(text.replace("{", "{{").replace("}", "}}")).format()


def _blocks(first: int, end: int | None) -> sql.Composable:
    condition = f" AND ctid >= '({first},0)'::tid"
    return sql.SQL(condition + ("" if end is None else f" AND ctid < '({end},0)'::tid"))


def _name_parts(name: str) -> list[str]:
    """Return the parts of a table's name; a part with a dot has to be quoted.

    Raises ConfigurationError: it is not a table's name.
    """
    parts = []
    if _NAME.fullmatch(name):
        quoted = (part[0] for part in _PART.finditer(name))
        parts = [p[1:-1].replace('""', '"') if p.startswith('"') else p for p in quoted]
    if not all(parts) or len(parts) not in {1, 2}:
        raise ConfigurationError(
            f"{name!r} does not name a table",
            hint='write table or schema.table; put a part with a dot or a quote in "quotes"',
        )
    return parts


def _whole(key: Key) -> list[str]:
    """Return the texts of a key that has no null."""
    return [text for text in key if text is not None]


def _cast_name(native: Native) -> str:
    return "bpchar" if native.kind is TypeFamily.PADDED else native.name


def _literal(native: Native, text: str) -> str | None:  # noqa: PLR0911 - one for each kind
    """Return a canonical text as PostgreSQL reads it, or None if no value of the type has it."""
    match native.kind:
        case TypeFamily.INTEGER:
            is_number = text.removeprefix("-").isdecimal() and text.isascii()
            return text if is_number and int(text) in _INTEGERS[native.name] else None
        case TypeFamily.NUMERIC:
            return text if _NUMERIC.fullmatch(text) else None
        case TypeFamily.UUID:
            return text if len(text) == 36 else None  # noqa: PLR2004 - a UUID's text
        case TypeFamily.BOOLEAN:
            return text if text in {"t", "f"} else None
        case TypeFamily.BYTES:
            return None if text.startswith(RAW) else f"\\x{text}"
        case TypeFamily.TIMESTAMP if native.zoned and text[:1].isdecimal():
            return text.removesuffix(" BC") + "+00" + (" BC" if text.endswith(" BC") else "")
        case _:
            return None if "\0" in text else text
