"""Tables that others inherit from: what of them is on the log, said in one way everywhere (pure).

PostgreSQL's `SELECT * FROM parent` has the rows of the children too; a topic has those of
`ONLY parent`, and each child that is captured has a topic of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from changelog.contract.rows.relation import TableName

WAY_OUT = "capture them too and put them together with UNION ALL: docs/reading.md"


def alone(table: TableName, children: Iterable[TableName]) -> str:
    """Return a note that a table's topic lacks the rows of its children."""
    names = ", ".join(str(child) for child in sorted(children))
    return (
        f"{table} has only its own rows, without those of {names}, which inherit from it and "
        f"are in SELECT * FROM {table}"
    )


def unread(
    read: Collection[TableName], children: Mapping[TableName, tuple[TableName, ...]]
) -> list[str]:
    """Return a line for each table that is read without the tables that inherit from it."""
    lines = []
    for table in sorted(set(read) & children.keys()):
        others = set(children[table]) - set(read)
        if others:
            lines.append(f"{alone(table, others)}; {WAY_OUT}")
    return lines
