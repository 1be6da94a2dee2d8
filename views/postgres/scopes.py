"""Names of a query of PostgreSQL's: which column each one means. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from views.base.postgres_sql import name_of
from views.postgres.values import Value, refusal
from views.project.query import quoted

_LEVELS = 2


@dataclass(slots=True)
class Source:
    """A table or a subquery of FROM, by its name.

    Attributes:
        alias: the name.
        columns: its columns, by name.
        key: the primary key of a table; empty where there is none.
    """

    alias: str
    columns: dict[str, Value]
    key: tuple[str, ...] = ()


@dataclass(slots=True)
class Scope:
    """The names that one SELECT knows.

    Attributes:
        parent: the scope of the query around it.
        sources: of FROM, in their order.
        merged: columns that USING makes one.
        outer: whether a column of the query around it was named.
        is_probe: whether it has no names, and only tells whether those around it were named.
        is_outside: whether a condition is read that stands outside of the query.
        taken: the columns of the query that such conditions name, and their names there.
        alias: the name of the query there.
    """

    parent: Scope | None = None
    sources: list[Source] = field(default_factory=list)
    merged: dict[str, Value] = field(default_factory=dict)
    outer: bool = False
    is_probe: bool = False
    is_outside: bool = False
    taken: dict[str, tuple[Value, str]] = field(default_factory=dict)
    alias: str = ""

    def column(self, node: exp.Column, level: int = 0) -> Value:
        """Return the value that a column's name means.

        Raises:
            ViewError: there is none, or several, or it is of a query too far outside.
        """
        value = self.own(node)
        if value is not None:
            if level >= _LEVELS:
                why = "it is a column of a query two levels outside"
                raise refusal(node, why, "join the table there")
            if self.is_outside and level == 0:
                _, own = self.taken.setdefault(value.text, (value, f"c{len(self.taken)}"))
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
        """Return the value of a column of this query's own; None if it has none of the name."""
        name = name_of(node.this)
        table = node.args.get("table")
        if table is None and name in self.merged:
            return self.merged[name]
        holders = [
            source
            for source in self.sources
            if (table is None or source.alias == name_of(table)) and name in source.columns
        ]
        if len(holders) > 1:
            hint = f"write {holders[0].alias}.{name}"
            raise refusal(node, "several tables have such a column", hint)
        named = [source for source in self.sources if table and source.alias == name_of(table)]
        if named and not holders:
            listed = ", ".join(list(named[0].columns)[:12])
            raise refusal(node, "the table has no such column", f"it has {listed}")
        return holders[0].columns[name] if holders else None

    def add(self, node: exp.Expr, source: Source) -> None:
        """Add what a name of FROM stands for.

        Raises:
            ViewError: the name stands for something else already.
        """
        if any(other.alias.lower() == source.alias.lower() for other in self.sources):
            raise refusal(node, f'"{source.alias}" stands for two tables', "give one an alias")
        folded = [name.lower() for name in source.columns]
        if len({*folded}) < len(folded):
            raise refusal(node, "Spark tells no names apart by capitals", "rename a column")
        self.sources.append(source)


def columns_of(alias: str, kinds: Mapping[str, Value]) -> dict[str, Value]:
    """Return the columns of what has a name in FROM."""
    return {
        name: Value(f"{quoted(alias)}.{quoted(name)}", value.kind) for name, value in kinds.items()
    }
