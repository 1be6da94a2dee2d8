"""Resolves the names of columns in a query of PostgreSQL's. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from views.base.postgres_sql import name_of
from views.postgres.values import Value, refusal
from views.project.query import quoted

_LEVELS = 2
"""Spark resolves names of the query around a subquery, and of none farther outside."""


@dataclass(slots=True)
class Source:
    """A table or a subquery in FROM.

    Attributes:
        alias: its name in the query.
        columns: its columns, by name.
        key: the primary key of a table; empty if there is none.
    """

    alias: str
    columns: dict[str, Value]
    key: tuple[str, ...] = ()


@dataclass(slots=True)
class Scope:
    """The names that one SELECT can use.

    Attributes:
        parent: the scope of the query around it.
        sources: of FROM, in their order.
        merged: columns that USING merges.
        outer: whether a column of the query around it has been named.
        is_probe: whether it has no names, and only finds out whether outer columns are named.
        is_outside: whether a condition is translated that will be moved out of the query.
        exported: the columns of the query in such conditions, and their names outside of it.
        alias: the name of the query in such conditions.
    """

    parent: Scope | None = None
    sources: list[Source] = field(default_factory=list)
    merged: dict[str, Value] = field(default_factory=dict)
    outer: bool = False
    is_probe: bool = False
    is_outside: bool = False
    exported: dict[str, tuple[Value, str]] = field(default_factory=dict)
    alias: str = ""

    def column(self, node: exp.Column, level: int = 0) -> Value:
        """Return the value of a column.

        Raises:
            ViewError: there is no such column, or several, or it is of a query too far outside.
        """
        value = self.own(node)
        if value is not None:
            if level >= _LEVELS:
                why = "it is a column of a query two levels outside"
                raise refusal(node, why, "join the table there")
            if self.is_outside and level == 0:
                _, own = self.exported.setdefault(value.text, (value, f"c{len(self.exported)}"))
                return Value(f"{quoted(self.alias)}.{quoted(own)}", value.kind)
            return value
        if self.parent is None:
            names = sorted({name for source in self.sources for name in source.columns})
            shown = ", ".join(names[:12])
            raise refusal(node, "there is no such column", f"known are {shown}" if names else "")
        value = self.parent.column(node, level + (not self.is_probe))
        self.outer = True
        return value

    def own(self, node: exp.Column) -> Value | None:
        """Return the value of a column of this query itself; None if it has none of the name."""
        name = name_of(node.this)
        table = node.args.get("table")
        if table is None and name in self.merged:
            return self.merged[name]
        matching = [
            source
            for source in self.sources
            if (table is None or source.alias == name_of(table)) and name in source.columns
        ]
        if len(matching) > 1:
            hint = f"write {matching[0].alias}.{name}"
            raise refusal(node, "several tables have such a column", hint)
        named = [source for source in self.sources if table and source.alias == name_of(table)]
        if named and not matching:
            listed = ", ".join(list(named[0].columns)[:12])
            raise refusal(node, "the table has no such column", f"it has {listed}")
        return matching[0].columns[name] if matching else None

    def add(self, node: exp.Expr, source: Source) -> None:
        """Add a table or a subquery of FROM.

        Raises:
            ViewError: its name is used already, or two of its columns differ only in case.
        """
        if any(other.alias.lower() == source.alias.lower() for other in self.sources):
            raise refusal(node, f'"{source.alias}" stands for two tables', "give one an alias")
        folded = [name.lower() for name in source.columns]
        if len({*folded}) < len(folded):
            raise refusal(
                node, "in Spark, names that differ only in case are the same", "rename a column"
            )
        self.sources.append(source)


def columns_of(alias: str, kinds: Mapping[str, Value]) -> dict[str, Value]:
    """Return the columns of a table or a subquery of FROM, qualified by its name."""
    return {
        name: Value(f"{quoted(alias)}.{quoted(name)}", value.kind) for name, value in kinds.items()
    }
