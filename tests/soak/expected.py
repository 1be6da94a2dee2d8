"""What a table held at an LSN, by what the source's triggers have kept.

The clock of a lane just before an LSN is known but for one: a transaction notes where the WAL stood
before its commit, and the next one of its lane begins after it. So there are two states that a lane
may have had, and what is judged at one LSN together must agree about which.
"""

import json
from datetime import datetime
from decimal import Decimal

STATE = """
SELECT DISTINCT ON (key) key, op, content::text, tick FROM audit.changes
WHERE tbl = %(table)s AND lane = %(lane)s AND tick <= %(tick)s AND key IS NOT NULL
AND seq > COALESCE(
    (SELECT max(seq) FROM audit.changes
     WHERE tbl = %(table)s AND lane = %(lane)s AND tick <= %(tick)s AND op = 't'), 0)
ORDER BY key, seq DESC
"""


def ticks_before(cursor, lane, lsn):
    """Return the clocks that the lane may have had at an LSN, the likelier first."""
    cursor.execute(
        "SELECT COALESCE(max(tick), 0) FROM audit.ticks WHERE lane = %s AND before < %s::pg_lsn",
        (lane, lsn),
    )
    ((newest,),) = cursor.fetchall()
    return [newest, newest - 1]


def states(cursor, table, lane, tick):
    """Return the rows that a table held for a lane, by key, once for each set of its columns.

    The stream has no word of ALTER TABLE until a row is written next, and a view has the columns
    that are known when it is made: those of the last row at least. Large texts are digests.
    """
    cursor.execute(STATE, {"table": table, "lane": lane, "tick": tick})
    found = cursor.fetchall()
    cursor.execute(
        "SELECT COALESCE(max(tick), 0) FROM audit.changes"
        " WHERE tbl = %s AND lane = %s AND tick <= %s",
        (table, lane, tick),
    )
    ((written,),) = cursor.fetchall()
    cursor.execute(
        "SELECT tick, action, name, value::text FROM audit.columns WHERE tbl = %s ORDER BY tick",
        (table,),
    )
    altered = cursor.fetchall()
    known = sum(when <= written for when, *_ in altered)
    return [
        {
            key: _completed(content, changed, altered[:end])
            for key, op, content, changed in found
            if op != "d"
        }
        for end in range(known, len(altered) + 1)
    ]


def _completed(content, changed, altered):
    """Return a row with the columns that its table has got and lost since it was changed."""
    row = json.loads(content, parse_int=Decimal, parse_float=Decimal)
    for when, action, name, value in altered:
        if action == "drop":
            row.pop(name, None)
        elif when > changed:
            row[name] = None if value is None else Decimal(value)
    if row.get("at") is not None:
        row["at"] = datetime.fromisoformat(row["at"])
    return row
