"""Rows of an exported snapshot, in chunks that several sessions can read side by side.

A chunk is a range of pages of one table or partition (`ctid`), which PostgreSQL reads without
touching the other pages. All chunks in one snapshot together hold each row once: the ranges
touch, and the last one of a table is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg2 import extensions, sql

from changelog.contract.errors import SourceError
from changelog.contract.relation import Relation, TableName
from changelog.source.connect import Connection, source_errors
from changelog.source.copytext import CopyTarget, OnLines

DEFAULT_BLOCKS = 8192
"""64 MiB of pages: enough work for one request, and progress that people can see."""

# What holds rows: the table itself, or the leaves of a partitioned one.
_STORES = """
SELECT n.nspname, c.relname, pg_relation_size(c.oid) / current_setting('block_size')::bigint
  FROM pg_class root
  LEFT JOIN LATERAL pg_partition_tree(root.oid) t ON root.relkind = 'p'
  JOIN pg_class c ON c.oid = coalesce(t.relid, root.oid)
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE root.oid = %s AND c.relkind = 'r'
 ORDER BY n.nspname, c.relname
"""
# relfilenode as the snapshot sees it, beside the present one: they differ after a rewrite.
_REWRITTEN = """
SELECT DISTINCT root.oid
  FROM unnest(%s::oid[]) AS root(oid)
  JOIN pg_class r ON r.oid = root.oid
  LEFT JOIN LATERAL pg_partition_tree(root.oid) t ON r.relkind = 'p'
  JOIN pg_class c ON c.oid = coalesce(t.relid, root.oid)
 WHERE c.relkind = 'r' AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid)
"""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Pages of a table: from `start` up to, not including, `end`; None is the table's end.

    Attributes:
        store: what holds the rows: the table, or one of its partitions.
        start: first page.
        end: first page that belongs to the next chunk.
        blocks: about how many pages that is, for progress.
    """

    store: TableName
    start: int
    end: int | None
    blocks: int


def begin_snapshot(
    connection: Connection, snapshot_name: str, relations: Sequence[Relation]
) -> None:
    """Let a session see the exported snapshot, and lock the tables against DDL.

    The session keeps both until its transaction ends (`connection.rollback()`, or closing).
    Row-level security is an error here and not a filter.

    Raises:
        SourceError: the snapshot is gone, or a table was rewritten or truncated since it was
            taken, so that the snapshot would read it as empty: start again.
    """
    connection.set_session(
        isolation_level=extensions.ISOLATION_LEVEL_REPEATABLE_READ, readonly=True, autocommit=False
    )
    with source_errors(connection, "cannot use the snapshot"), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot_name,))
        cursor.execute("SET LOCAL row_security = off")
        cursor.execute("SET LOCAL statement_timeout = 0")
        if not relations:
            return
        names = sql.SQL(", ").join(sql.Identifier(*relation.name) for relation in relations)
        cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names))
        cursor.execute(_REWRITTEN, ([relation.oid for relation in relations],))
        oids = {oid for (oid,) in cursor.fetchall()}
    rewritten = [str(relation.name) for relation in relations if relation.oid in oids]
    if rewritten:
        raise SourceError(
            f"tables were rewritten or truncated after the snapshot: {', '.join(rewritten)}",
            hint="drop the slot and start again",
        )


def plan_chunks(
    connection: Connection, relation: Relation, *, blocks: int = DEFAULT_BLOCKS
) -> list[Chunk]:
    """Cut a table into chunks of at most `blocks` pages; an empty table has one.

    Call it after `begin_snapshot`: pages added since then hold rows that the snapshot does not
    see, or that the last, open chunk reads.
    """
    what = f'cannot plan the snapshot of "{relation.name}"'
    with source_errors(connection, what), connection.cursor() as cursor:
        cursor.execute(_STORES, (relation.oid,))
        stores = cursor.fetchall()
    chunks = []
    for schema, table, pages in stores:
        starts = range(0, max(1, pages), blocks)
        for start in starts:
            last = start == starts[-1]
            end = None if last else start + blocks
            size = pages - start if last else blocks
            chunks.append(Chunk(TableName(schema, table), start, end, size))
    return chunks


def read_chunk(
    connection: Connection,
    relation: Relation,
    chunk: Chunk,
    on_lines: OnLines,
    *,
    batch_rows: int = 4000,
    where: str = "",
) -> int:
    """Read a chunk's rows in the order of `relation.columns` and give their number.

    `where` is an SQL condition of the publication, as the server writes it, or an empty text.

    `on_lines` gets them as they come, lines of COPY's text format, `batch_rows` at a time; while
    it blocks, PostgreSQL waits. When it raises, the connection is in the middle of a COPY and has
    to be closed.

    Raises:
        SourceError: PostgreSQL cannot read the rows, or the connection is lost.
    """
    target = CopyTarget(on_lines, batch_rows)
    with (
        source_errors(connection, f'cannot read the table "{chunk.store}"'),
        connection.cursor() as cursor,
    ):
        cursor.copy_expert(_copy(relation, chunk, where), target)
    target.finish()
    return target.rows


def _copy(relation: Relation, chunk: Chunk, condition: str) -> sql.Composed:
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns)
    where: list[sql.Composable] = [sql.SQL("ctid >= {}").format(sql.Literal(f"({chunk.start},0)"))]
    if chunk.end is not None:
        where.append(sql.SQL("ctid < {}").format(sql.Literal(f"({chunk.end},0)")))
    if condition:
        where.append(sql.SQL(f"({condition})"))
    # ONLY: a table that others inherit from has their rows in their own topics.
    return sql.SQL("COPY (SELECT {} FROM ONLY {} WHERE {}) TO STDOUT").format(
        columns, sql.Identifier(*chunk.store), sql.SQL(" AND ").join(where)
    )
