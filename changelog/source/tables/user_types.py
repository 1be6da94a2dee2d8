"""Look at the types that users made and that columns of captured tables show."""

from __future__ import annotations

from collections.abc import Collection

from psycopg2.extensions import cursor as Cursor  # noqa: N812 - a class

from changelog.contract.rows.user_type import CompositeType, EnumType, Label, UserType
from changelog.source.connect.versions import for_version

FIRST_USER_OID = 16384  # objects of PostgreSQL itself have lower ones: their types are not altered

INSIDE = """
       (SELECT t.typbasetype
         UNION ALL SELECT t.typelem
         UNION ALL SELECT rngsubtype FROM pg_range WHERE t.oid IN (rngtypid, rngmultitypid)
         UNION ALL SELECT atttypid FROM pg_attribute
                    WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped)
       AS inside (type)
"""
"""The types inside a type `t`: of a domain, an array, a range, a multirange, a composite type."""

# `late`: an entry of the type was written after the one that ties the column to its type, which is
# written when the column is made, and never altered. Two entries of one transaction are told apart
# by the numbers of its commands; whoever tries to alter an entry later overwrites its number.
_TYPES = f"""
WITH RECURSIVE shown AS (
    SELECT attrelid AS root, attnum AS number, atttypid AS type
      FROM pg_attribute
     WHERE attrelid = ANY (%(oids)s) AND attnum > 0 AND NOT attisdropped
       AND atttypid >= {FIRST_USER_OID}
     UNION
    SELECT shown.root, shown.number, inside.type
      FROM shown
      JOIN pg_type t ON t.oid = shown.type
     CROSS JOIN LATERAL {INSIDE}
     WHERE inside.type >= {FIRST_USER_OID}
), used AS (
    SELECT shown.root, shown.type, d.xmin, d.cmin
      FROM shown LEFT JOIN pg_depend d
        ON d.classid = 'pg_class'::regclass AND d.objid = shown.root
       AND d.objsubid = shown.number AND d.refclassid = 'pg_type'::regclass
)
SELECT used.root, t.oid, t.typtype::text, format_type(t.oid, NULL), t.typrelid,
       bool_or(EXISTS (
           SELECT FROM (
                  SELECT xmin, cmin, xmax FROM pg_enum WHERE enumtypid = t.oid
                   UNION ALL
                  SELECT xmin, cmin, xmax FROM pg_attribute
                   WHERE attrelid = t.typrelid AND attnum > 0
           ) AS entry
            WHERE age(entry.xmin) BETWEEN 0 AND age(used.xmin) - 1
               OR entry.xmin = used.xmin
              AND (entry.cmin::text::bigint > used.cmin::text::bigint OR entry.xmax::text <> '0')
       ))
  FROM used JOIN pg_type t ON t.oid = used.type
 WHERE t.typtype IN ('c', 'e')
 GROUP BY used.root, t.oid
 ORDER BY used.root, t.oid
"""
_LABELS = """
SELECT enumtypid, oid, enumlabel, xmin::text::bigint
  FROM pg_enum WHERE enumtypid = ANY (%s) ORDER BY oid
"""
_ATTRIBUTES = """
SELECT attrelid, attnum, atttypid, atttypmod, attisdropped
  FROM pg_attribute WHERE attrelid = ANY (%s) AND attnum > 0 ORDER BY attnum
"""


def user_types(cursor: Cursor, oids: Collection[int]) -> dict[int, dict[int, UserType]]:
    """Return the enums and composite types that columns of some tables show, by table and oid.

    The cursor is of a transaction that sees one moment.
    """
    if not oids:
        return {}
    cursor.execute(for_version(_TYPES, cursor.connection.server_version), {"oids": list(oids)})
    type_rows = cursor.fetchall()
    labels: dict[int, dict[int, Label]] = {}
    cursor.execute(_LABELS, ([row[1] for row in type_rows],))
    for oid, label, text, xid in cursor.fetchall():
        labels.setdefault(oid, {})[label] = Label(text, xid)
    attributes: dict[int, dict[int, tuple[int, int] | None]] = {}
    cursor.execute(_ATTRIBUTES, ([row[4] for row in type_rows],))
    for relation, number, kind, modifier, dropped in cursor.fetchall():
        attributes.setdefault(relation, {})[number] = None if dropped else (kind, modifier)
    types: dict[int, dict[int, UserType]] = {}
    for root, oid, form, name, relation, late in type_rows:
        if form == "e":
            user_type: UserType = EnumType(name, late, labels.get(oid, {}))
        else:
            user_type = _composite(name, late, attributes.get(relation, {}))
        types.setdefault(root, {})[oid] = user_type
    return types


def _composite(name: str, late: bool, numbered: dict[int, tuple[int, int] | None]) -> CompositeType:
    live = {number: attribute for number, attribute in numbered.items() if attribute is not None}
    return CompositeType(name, late, live, max(numbered, default=0))
