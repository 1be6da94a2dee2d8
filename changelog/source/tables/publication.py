"""The publication: what PostgreSQL sends us."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from psycopg2 import sql

from changelog.contract.base.errors import SourceError, UncapturableTableError
from changelog.contract.log.scope import OPERATIONS
from changelog.contract.rows.relation import TableName
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import rows_of, source_errors
from changelog.source.connect.readiness import not_owned
from changelog.source.connect.steady import has_vanished, steadily
from changelog.source.connect.versions import PUBLISHES_PARTITIONED, SENDS_TRUNCATE, for_version

_FIND = """
SELECT oid, puballtables, pubviaroot,
       array_remove(ARRAY[CASE WHEN pubinsert THEN 'insert' END,
                          CASE WHEN pubupdate THEN 'update' END,
                          CASE WHEN pubdelete THEN 'delete' END,
                          CASE WHEN pubtruncate THEN 'truncate' END], NULL)
  FROM pg_publication WHERE pubname = %s
"""
_TABLES = """
SELECT n.nspname, c.relname, NULL, false
  FROM pg_publication_rel r
  JOIN pg_class c ON c.oid = r.prrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE r.prpubid = %s
"""
# PostgreSQL 15 added row filters, column lists and whole schemas.
_TABLES_15 = _TABLES.replace(
    "NULL, false", "pg_get_expr(r.prqual, r.prrelid), r.prattrs IS NOT NULL"
)
_SCHEMAS = "SELECT count(*) FROM pg_publication_namespace WHERE pnpubid = %s"
_SENT = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s"
_GENERATED = "SELECT pubgencols = 's' FROM pg_publication WHERE pubname = %s"
# Columns that the row filters read, beside those that an old row brings along.
_FILTER_COLUMNS = """
SELECT n.nspname, c.relname, array_agg(a.attname ORDER BY a.attnum)
  FROM pg_publication_rel r
  JOIN pg_depend d ON d.classid = 'pg_publication_rel'::regclass AND d.objid = r.oid
   AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0
  JOIN pg_class c ON c.oid = r.prrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_attribute a ON a.attrelid = r.prrelid AND a.attnum = d.refobjsubid
 WHERE r.prpubid = %s
   AND EXISTS (
       SELECT FROM pg_class s
         LEFT JOIN pg_index i ON i.indrelid = s.oid
          AND CASE s.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END
         LEFT JOIN pg_attribute k ON k.attrelid = s.oid AND k.attname = a.attname
        WHERE (s.oid = c.oid OR s.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))
          AND s.relkind = 'r' AND s.relreplident <> 'f'
          AND NOT coalesce(k.attnum = ANY (i.indkey::int2[]), false))
 GROUP BY n.nspname, c.relname
"""
_MISSING = """
SELECT w.nspname, w.relname FROM unnest(%s::text[], %s::text[]) AS w(nspname, relname)
 WHERE NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname = w.nspname AND c.relname = w.relname)
"""
_VERSION_15, _VERSION_18 = 150_000, 180_000
REHEARSAL_TIMEOUT = "5s"  # how long a rehearsal waits for a lock on a table

_DROP_TABLE = sql.SQL("ALTER PUBLICATION {} DROP TABLE {}")
_ADD_TABLE = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}")
_STORED = "publish_generated_columns = stored"
_VIA_ROOT = ", publish_via_partition_root = true"
_OWN = "drop it, or let capture use a publication of its own"

_BACK = (
    "alter it back with ALTER PUBLICATION (its slot cannot read one that is made again), and have "
    "the tables copied: `changelog resnapshot`"
)

NOT_OURS = "belongs to another role: its owner alone may publish it"
"""Why a table cannot be taken into the publication, or be sent in another way than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPublication:
    """Contents that a publication must have."""

    # with the row filter of each, an SQL condition or an empty text
    tables: Mapping[TableName, str]
    operations: tuple[str, ...] = OPERATIONS  # of `OPERATIONS`
    # operations that the log was made with; a publication that has these and no others is ours to
    # alter
    before: tuple[str, ...] | None = None
    # whether the log was made with row filters, so that they are ours too
    filtered_before: bool = False
    # tables that have, or are going to have, REPLICA IDENTITY FULL
    full: frozenset[TableName] = frozenset()
    # tables whose row filters are those that the log was made with
    as_before: frozenset[TableName] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationFacts:
    """A publication as it is."""

    oid: int  # its object id
    all_tables: bool  # whether it is FOR ALL TABLES
    via_root: bool  # whether rows of partitions come as their root's
    operations: tuple[str, ...]  # that it sends, of `OPERATIONS`
    # that it names, with the row filter of each as the server writes it
    tables: Mapping[TableName, str]
    narrowed: frozenset[TableName]  # tables with a list of columns
    schemas: bool  # whether it names whole schemas
    sent: frozenset[TableName]  # every table that it sends, whichever way it is named
    # whether it sends generated columns that are stored; None where none can
    generated: bool | None = None


@dataclass(frozen=True, slots=True)
class PublicationChange:
    """Result of `make_publication`; a table that it added or filtered needs its own snapshot."""

    created: bool  # it was not there
    added: frozenset[TableName]  # tables that it did not have
    removed: frozenset[TableName]  # tables that it no longer has
    # tables that had another row filter, or a list of columns
    refiltered: frozenset[TableName] = frozenset()
    # the row filter of each table that has one, as the server writes it
    filters: Mapping[TableName, str] = field(default_factory=dict)
    # wanted tables that are gone meanwhile, and so left out
    vanished: frozenset[TableName] = frozenset()
    generated: bool = False  # it did not send generated columns


def sendable(operations: tuple[str, ...], version: int) -> tuple[str, ...]:
    """Return the operations, of the given ones, that a publication can send.

    PostgreSQL 10 sends no TRUNCATE: capture notices it as it does a table that was rewritten.
    """
    if version >= SENDS_TRUNCATE:
        return operations
    return tuple(operation for operation in operations if operation != "truncate")


def sends_stored(connection: Connection, name: str, *, is_ours: bool) -> bool:
    """Tell whether a publication sends stored generated columns, or will once it is made.

    One that is ours, which capture makes and alters, sends what the server can.

    Raises SourceError: it cannot be read.
    """
    if connection.server_version < _VERSION_18:
        return False
    facts = None if is_ours else read_publication(connection, name)
    return is_ours or (facts is not None and bool(facts.generated))


def read_publication(connection: Connection, name: str) -> PublicationFacts | None:
    """Read a publication, or return None if it is missing. Changes nothing."""
    return steadily(lambda: _read(connection, name))


def _read(connection: Connection, name: str) -> PublicationFacts | None:
    failure = f'cannot read the publication "{name}"'
    recent = connection.server_version >= _VERSION_15
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute(for_version(_FIND, connection.server_version), (name,))
        row = cursor.fetchone()
        if row is None:
            return None
        oid, all_tables, via_root, operations = row
        cursor.execute(_TABLES_15 if recent else _TABLES, (oid,))
        rows = [(TableName(schema, table), *more) for schema, table, *more in cursor.fetchall()]
        schemas = 0
        if recent:
            cursor.execute(_SCHEMAS, (oid,))
            (schemas,) = cursor.fetchone() or (0,)
        generated = None
        if connection.server_version >= _VERSION_18:
            cursor.execute(_GENERATED, (name,))
            (generated,) = cursor.fetchone() or (False,)
        cursor.execute(_SENT, (name,))
        sent = frozenset(TableName(*row) for row in cursor.fetchall())
    return PublicationFacts(
        oid=oid,
        all_tables=all_tables,
        via_root=via_root,
        operations=tuple(operation for operation in OPERATIONS if operation in operations),
        tables={table: condition or "" for table, condition, _ in rows},
        narrowed=frozenset(table for table, _, narrowed in rows if narrowed),
        schemas=bool(schemas),
        sent=sent,
        generated=generated,
    )


def make_publication(
    connection: Connection, name: str, wish: WantedPublication, *, rehearse: bool = False
) -> PublicationChange:
    """Make the publication, or alter it, so that it sends exactly what is wanted.

    Make it before the slot: a stream cannot read a publication that is younger than the changes.
    A rehearsal does the same, so that the server says what it would refuse, and takes it back.
    A table that vanishes meanwhile is left out, and named in what is returned.

    Raises SourceError: the right is missing, a row filter cannot be used, or the existing
    publication sends something else than we need, which altering it now would not mend for the
    changes already made.
    """
    check_filters_possible(connection, wish)
    vanished: set[TableName] = set()

    def attempt() -> PublicationChange:
        remaining = {table: how for table, how in wish.tables.items() if table not in vanished}
        try:
            return _make(connection, name, replace(wish, tables=remaining), rehearse=rehearse)
        except SourceError as error:
            if has_vanished(error):
                vanished.update(_missing(connection, remaining))
            if vanished and len(vanished) == len(wish.tables):
                raise _all_gone(vanished) from error
            raise

    return replace(steadily(attempt), vanished=frozenset(vanished))


def _make(
    connection: Connection, name: str, wish: WantedPublication, *, rehearse: bool
) -> PublicationChange:
    facts = _read(connection, name)
    wish = replace(wish, operations=sendable(wish.operations, connection.server_version))
    if facts is not None:
        problems = shape_problems(name, facts, wish)
        if problems:
            raise SourceError("; ".join(problems), hint=_OWN if wish.before is None else _BACK)
        if _same(facts, wish):
            return PublicationChange(False, frozenset(), frozenset())
    failure = f'cannot make the publication "{name}"'
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            if rehearse:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", (REHEARSAL_TIMEOUT,))
            version = connection.server_version
            if facts is None:
                _check_owned(connection, wish.tables)
                cursor.execute(_create(name, wish, version))
            else:
                _check_owned(connection, wish.tables.keys() - facts.tables.keys())
                refiltered = _refiltered(connection, name, facts, wish)
                for statement in _alter(name, facts, wish, refiltered):
                    cursor.execute(statement)
            after = _read(connection, name)
            assert after is not None  # noqa: S101 - made in this transaction
            _check_filter_columns(connection, after.oid, wish)
            untouched = facts is not None and _alike(facts, after)
            cursor.execute("ROLLBACK" if untouched or rehearse else "COMMIT")
        except BaseException:
            if not connection.closed:
                cursor.execute("ROLLBACK")
            raise
    return _change(facts, after)


def _missing(connection: Connection, tables: Iterable[TableName]) -> set[TableName]:
    """Return the tables of these names that are not there now."""
    names = list(tables)
    parts = ([table.schema for table in names], [table.table for table in names])
    return {
        TableName(*row) for row in rows_of(connection, "cannot read the catalogue", _MISSING, parts)
    }


def _all_gone(tables: Iterable[TableName]) -> SourceError:
    names = ", ".join(str(table) for table in sorted(tables))
    return SourceError(f"no table is left to publish: {names} vanished", hint="start again")


def use_publication(
    connection: Connection,
    name: str,
    wish: WantedPublication,
    *,
    hint: str = "alter the publication, or let capture do it: --create-publication",
) -> PublicationChange:
    """Check that a publication that others made sends what is wanted; changes nothing.

    It may send more tables: what comes of them is left out. `hint` says what to do where it does
    not send what is wanted.

    Raises SourceError: it is missing or sends something else; names all that is wrong.
    """
    facts = read_publication(connection, name)
    wish = replace(wish, operations=sendable(wish.operations, connection.server_version))
    problems = use_problems(name, facts, wish)
    if problems:
        raise SourceError("; ".join(problems), hint=hint)
    assert facts is not None  # noqa: S101 - a missing one is a problem
    filters = {table: text for table, text in facts.tables.items() if text}
    return PublicationChange(False, frozenset(), frozenset(), filters=filters)


def shape_problems(name: str, facts: PublicationFacts, wish: WantedPublication) -> list[str]:
    """Return the reasons why an existing publication cannot be altered."""
    subject = f'the publication "{name}"'
    ours = facts.operations in {wish.operations, wish.before or wish.operations}
    # Of one that the log was made with, filters and lists are taken off, and the tables copied.
    asks_filters = wish.before is not None or wish.filtered_before or any(wish.tables.values())
    filtered = any(facts.tables.values()) and not asks_filters
    narrowed = bool(facts.narrowed) and wish.before is None
    problems = [
        (facts.all_tables, f"{subject} is FOR ALL TABLES"),
        (not facts.via_root, f"{subject} does not publish via the root of partitioned tables"),
        (not ours, _other_operations(subject, facts, wish)),
        (
            narrowed or facts.schemas or filtered,
            f"{subject} has row filters, column lists or whole schemas",
        ),
    ]
    return [text for bad, text in problems if bad]


def use_problems(name: str, facts: PublicationFacts | None, wish: WantedPublication) -> list[str]:
    """Return the reasons why a publication that is not ours to alter cannot be used as it is."""
    subject = f'the publication "{name}"'
    if facts is None:
        return [f"{subject} does not exist"]
    problems = []
    missing = sorted(set(wish.tables) - facts.sent)
    if missing:
        problems.append(f"{subject} does not send {', '.join(map(str, missing))}")
    if not facts.via_root:
        problems.append(f"{subject} does not publish via the root of partitioned tables")
    if facts.operations != wish.operations:
        problems.append(_other_operations(subject, facts, wish))
    for table, condition in sorted(wish.tables.items()):
        if table in facts.narrowed:
            problems.append(f'{subject} has a list of columns for "{table}"')
        has = facts.tables.get(table, "")
        if _bare(has) != _bare(condition):
            problems.append(f'{subject} filters "{table}" by {has or "nothing"}')
    return problems


def _other_operations(subject: str, facts: PublicationFacts, wish: WantedPublication) -> str:
    if wish.operations == OPERATIONS:
        return f"{subject} does not publish each of insert, update, delete, truncate"
    has, needs = ", ".join(facts.operations) or "nothing", ", ".join(wish.operations)
    return f"{subject} publishes {has}, not {needs}"


def _bare(condition: str) -> str:
    """Return a condition without blanks and outer brackets, so that two spellings compare equal."""
    text = " ".join(condition.split())
    while text.startswith("(") and text.endswith(")") and _closes_at_end(text):
        text = text[1:-1].strip()
    return text


def _closes_at_end(text: str) -> bool:
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place == len(text) - 1
    return False


def check_filters_possible(connection: Connection, wish: WantedPublication) -> None:
    """Check that the server knows row filters, when there are any.

    Raises SourceError: PostgreSQL is older than 15.
    """
    if any(wish.tables.values()) and connection.server_version < _VERSION_15:
        raise SourceError(
            f"PostgreSQL {connection.server_version // 10_000} has no row filters",
            hint="they came with 15; leave --where out, or exclude the table",
        )


def _check_filter_columns(connection: Connection, oid: int, wish: WantedPublication) -> None:
    """Refuse a filter under which the users' own updates and deletes would fail."""
    if not any(wish.tables.values()) or not {"update", "delete"} & set(wish.operations):
        return
    with connection.cursor() as cursor:
        cursor.execute(_FILTER_COLUMNS, (oid,))
        unfit = [(TableName(schema, table), names) for schema, table, names in cursor.fetchall()]
    unfit = [entry for entry in unfit if entry[0] not in wish.full]
    if unfit:
        faults = "; ".join(
            f"table {table.said}: its row filter reads {', '.join(names)}, which an old row does "
            "not bring along: updates and deletes of the table would fail"
            for table, names in unfit
        )
        raise UncapturableTableError(
            faults, hint="--replica-identity full, or filter by the primary key alone"
        )


def _same(facts: PublicationFacts, wish: WantedPublication) -> bool:
    """Tell without a statement that nothing is to be altered; filters need the server's eye."""
    return (
        facts.operations == wish.operations
        and facts.generated is not False
        and not facts.narrowed
        and set(facts.tables) == set(wish.tables)
        and not any(facts.tables.values())
        and not any(wish.tables.values())
    )


def _alike(before: PublicationFacts, after: PublicationFacts) -> bool:
    old, new = (
        (facts.operations, facts.tables, facts.narrowed, facts.generated)
        for facts in (before, after)
    )
    return old == new


def _change(before: PublicationFacts | None, after: PublicationFacts) -> PublicationChange:
    old: Mapping[TableName, str] = before.tables if before else {}
    new = after.tables
    widened = before.narrowed - after.narrowed if before else frozenset()
    return PublicationChange(
        created=before is None,
        added=frozenset(set(new) - set(old)),
        removed=frozenset(set(old) - set(new)),
        refiltered=frozenset(
            table for table in set(new) & set(old) if new[table] != old[table] or table in widened
        ),
        filters={table: text for table, text in new.items() if text},
        generated=before is not None and before.generated != after.generated,
    )


def published_tables(connection: Connection, name: str) -> frozenset[TableName]:
    """Return the tables that a publication sends, none when it is missing; changes nothing."""
    facts = read_publication(connection, name)
    return frozenset() if facts is None else facts.sent


def _check_owned(connection: Connection, tables: Iterable[TableName]) -> None:
    """Check that the role may publish tables.

    Raises SourceError: some belong to another role; names them.
    """
    others = not_owned(connection, list(tables))
    if others:
        raise SourceError(
            "; ".join(f"table {table.said} {NOT_OURS}" for table in others),
            hint="ALTER TABLE … OWNER TO …, or leave it out (--exclude)",
        )


def _refiltered(
    connection: Connection, name: str, facts: PublicationFacts, wish: WantedPublication
) -> list[TableName]:
    """Return the tables whose row filter has to change, or that have a list of columns.

    The server says how it writes a condition only once the publication has it. So it is put there
    and taken back, but for a table of another role, whose filter stays where it is the same text,
    or the one that the log was made with.
    """
    both = {table: text for table, text in facts.tables.items() if table in wish.tables}
    filtered = {table: text for table, text in both.items() if text or wish.tables[table]}
    others = {*not_owned(connection, list(filtered))}
    differing = {
        table
        for table in others - wish.as_before
        if _bare(filtered[table]) != _bare(wish.tables[table])
    }
    narrowed = facts.narrowed & wish.tables.keys()
    _check_owned(connection, differing | narrowed)
    own = filtered.keys() - others
    if not own:
        return sorted(narrowed)
    with connection.cursor() as cursor:
        cursor.execute("SAVEPOINT filters")
        for statement in _anew(name, own, wish.tables):
            cursor.execute(statement)
        after = _read(connection, name)
        cursor.execute("ROLLBACK TO SAVEPOINT filters")
    new = after.tables if after is not None else {}
    return sorted({table for table in own if new.get(table) != filtered[table]} | narrowed)


def _create(name: str, publication: WantedPublication, version: int) -> sql.Composed:
    listed = _listed(publication.tables)
    of_tables = sql.SQL("FOR TABLE {}").format(listed) if publication.tables else sql.SQL("")
    more = _VIA_ROOT if version >= PUBLISHES_PARTITIONED else ""
    more += f", {_STORED}" if version >= _VERSION_18 else ""
    return sql.SQL("CREATE PUBLICATION {} {} WITH (publish = {}{})").format(
        sql.Identifier(name),
        of_tables,
        sql.Literal(", ".join(publication.operations)),
        sql.SQL(more),
    )


def _alter(
    name: str,
    facts: PublicationFacts,
    publication: WantedPublication,
    refiltered: Iterable[TableName],
) -> list[sql.Composed]:
    """Return the statements that alter a publication, which name no table that stays as it is.

    SET TABLE would need the ownership of all.
    """
    own = sql.Identifier(name)
    removed = dict.fromkeys(facts.tables.keys() - publication.tables.keys(), "")
    added = {table: how for table, how in publication.tables.items() if table not in facts.tables}
    statements = []
    if removed:
        statements.append(_DROP_TABLE.format(own, _listed(removed)))
    statements += _anew(name, refiltered, publication.tables)
    if added:
        statements.append(_ADD_TABLE.format(own, _listed(added)))
    if facts.operations != publication.operations:
        operations = sql.Literal(", ".join(publication.operations))
        statements.append(
            sql.SQL("ALTER PUBLICATION {} SET (publish = {})").format(own, operations)
        )
    if facts.generated is False:
        statements.append(sql.SQL(f"ALTER PUBLICATION {{}} SET ({_STORED})").format(own))
    return statements


def _anew(
    name: str, tables: Iterable[TableName], rows: Mapping[TableName, str]
) -> list[sql.Composed]:
    """Return the statements that take tables out of a publication and in again."""
    filters = {table: rows[table] for table in tables}
    if not filters:
        return []
    own = sql.Identifier(name)
    return [
        _DROP_TABLE.format(own, _listed(dict.fromkeys(filters, ""))),
        _ADD_TABLE.format(own, _listed(filters)),
    ]


def _listed(tables: Mapping[TableName, str]) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("ONLY {}").format(sql.Identifier(*table))
        + (sql.SQL(f" WHERE ({condition})") if condition else sql.SQL(""))
        for table, condition in sorted(tables.items())
    )
