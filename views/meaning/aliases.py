"""Names that Spark does not find: a column's own name in WHERE, too few names of a table. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlglot import exp

from changelog.contract.base.errors import ViewError

_CLAUSES = ("where", "from_", "joins")


def check_aliases(query: exp.Expr, tables: Mapping[str, Collection[str]]) -> None:
    """Refuse names that sqlglot finds, and Spark's analyser does not.

    Args:
        query: with qualified columns; the names that it gives itself are not put in.
        tables: the columns of each captured table.

    Raises:
        ViewError: a clause that is computed before the columns are names one of them, or a table
            is given fewer or more names of columns than it has.
    """
    for select in query.find_all(exp.Select):
        names = {item.alias.lower() for item in select.selects if isinstance(item, exp.Alias)}
        for clause in _CLAUSES:
            part = select.args.get(clause)
            for one in part if isinstance(part, list) else [part]:
                for column in one.find_all(exp.Column) if one is not None else ():
                    own = column.find_ancestor(exp.Select) is select
                    if own and not column.table and column.name.lower() in names:
                        word = "WHERE" if clause == "where" else "ON"
                        raise ViewError(
                            f'"{column.name}" in {word} is a name that SELECT gives, and is not '
                            "known there yet",
                            hint="write what it stands for, or put the query into a subquery",
                        )
    for table in query.find_all(exp.Table):
        named = table.args["alias"].columns if table.args.get("alias") else []
        listed = tables.get(table.name, ())
        if named and listed and len(named) != len(listed):
            raise ViewError(
                f"{table.alias} is given {len(named)} names of columns, and has {len(listed)}",
                hint="name the table alone, and its columns with AS in SELECT",
            )
