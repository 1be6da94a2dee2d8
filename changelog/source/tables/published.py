"""Whether a publication still sends what it sent when the stream began.

PostgreSQL 18 leaves out the changes of a missing publication with no more than a warning in its own
log, and every version obeys when someone takes a table out: the stream goes on and rows are lost
without a word. What was there is compared before each frontier, read after the stream has come to
some LSN: if nothing was taken away, the publication was whole up to there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from changelog.contract.log.standing import PublicationVersion
from changelog.postgres.connection import Connection
from changelog.source.connect.connect import row_of, source_errors

# Entries have another xmin after each statement that wrote them, also one that is undone later.
_OWN = """
SELECT oid::bigint, xmin::text::bigint, to_jsonb(p)::text FROM pg_publication p WHERE pubname = %s
"""
_TABLES = """
SELECT prrelid, format('table %%s:%%s', prrelid, xmin) FROM pg_publication_rel
 WHERE prpubid = %s
"""
_SCHEMAS = """
SELECT pnnspid, format('schema %%s:%%s', pnnspid, xmin) FROM pg_publication_namespace
 WHERE pnpubid = %s
"""
_THERE = """
SELECT oid FROM pg_class WHERE oid = ANY (%(oids)s::oid[])
 UNION ALL
SELECT oid FROM pg_namespace WHERE oid = ANY (%(oids)s::oid[])
"""
_VERSION_15 = 150_000


def publication_versions(
    connection: Connection, name: str, groups: Iterable[str]
) -> PublicationVersion | None:
    """Return the version of a publication with its groups', or None if one is missing."""
    main = publication_version(connection, name)
    others = [(group, publication_version(connection, group)) for group in groups]
    present = tuple((group, version) for group, version in others if version is not None)
    if main is None or len(present) < len(others):
        return None
    return replace(main, groups=present)


def publication_version(connection: Connection, name: str) -> PublicationVersion | None:
    """Return the version of a publication, or None if it is missing."""
    failure = f'cannot read the publication "{name}"'
    with source_errors(connection, failure), connection.cursor() as cursor:
        cursor.execute(_OWN, (name,))
        row = cursor.fetchone()
        if row is None:
            return None
        cursor.execute(_TABLES, (row[0],))
        entries = set(cursor.fetchall())
        if connection.server_version >= _VERSION_15:
            cursor.execute(_SCHEMAS, (row[0],))
            entries |= set(cursor.fetchall())
    return PublicationVersion((row[0], row[1]), row[2], frozenset(entries))


def sends_still(
    connection: Connection, before: PublicationVersion | None, now: PublicationVersion | None
) -> bool:
    """Tell whether a publication sends all that it sent before, of what there still is.

    A table that was dropped has left every publication; one that was added takes nothing away. But
    one that two groups send now would be on the log twice.
    """
    if before is None or now is None or before.own != now.own:
        return before == now
    if before.groups or now.groups:
        groups = dict(now.groups)
        if {name for name, _ in before.groups} != groups.keys() or not all(
            sends_still(connection, old, groups[name]) for name, old in before.groups
        ):
            return False
        if _is_sent_twice(now):
            return False
    lost = [oid for oid, _ in before.entries - now.entries]
    if not lost:
        return True
    return row_of(connection, "cannot read the catalogue", _THERE, {"oids": lost}) is None


def _is_sent_twice(version: PublicationVersion) -> bool:
    of_each = [version.all_oids, *(group_version.all_oids for _, group_version in version.groups)]
    return sum(map(len, of_each)) > len(frozenset[int]().union(*of_each))
