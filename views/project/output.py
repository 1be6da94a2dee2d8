"""The columns that a query gives, by the names that its author wrote. Pure.

Spark keeps an alias as it is written and a plain column as the query writes it; those of `*` are
spelled as the tables have them. An expression without a name gets one that Spark makes up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from changelog.contract.rows.relation import TableName

Tables = Mapping[TableName, Sequence[str]]
"""The columns of tables."""
_ONE_SIDED = {"SEMI", "ANTI"}
_GENERATORS = {"explode", "posexplode", "inline", "stack", "json_tuple", "variant_explode"}


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of a query."""

    name: str  # as its author spelled it; empty for an expression without one
    value: exp.Expr | None = None  # the expression; None for a column that `*` stands for

    @property
    def text(self) -> str:
        """Return the expression as Spark's SQL, or the name."""
        return self.name if self.value is None else self.value.sql(dialect="spark")


class _UnknownError(Exception):
    """The columns of a `*` cannot be derived."""


def outputs(query: exp.Expr, tables: Tables) -> list[OutputColumn] | None:
    """Return the columns of a query in their order, or None if they cannot be derived.

    `query`: in Spark's SQL, as it was parsed. `tables`: the columns of the tables that it may read;
    without one, its `*` is not known.
    """
    try:
        return _outputs(query, tables, {})
    except (_UnknownError, RecursionError):
        return None


def spelled(key: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a key as a query spells them, where the case alone differs.

    One that no column, or more than one, could be stays as it is.
    """
    return tuple(_spelled(name, names) for name in key)


def _spelled(name: str, names: Sequence[str]) -> str:
    alike = [candidate for candidate in names if candidate.lower() == name.lower()]
    return alike[0] if len(alike) == 1 and name not in names else name


_Queries = Mapping[str, list[OutputColumn]]


def _outputs(query: exp.Expr, tables: Tables, queries: _Queries) -> list[OutputColumn]:
    queries = {**queries, **dict(_named(query, tables, queries))}
    match query:
        case exp.Subquery() | exp.Paren():
            return _outputs(query.this, tables, queries)
        case exp.SetOperation():
            return _outputs(query.this, tables, queries)
        case exp.Select():
            return list(_selected(query, tables, queries))
        case _:
            raise _UnknownError


def _named(
    query: exp.Expr, tables: Tables, queries: _Queries
) -> Iterator[tuple[str, list[OutputColumn]]]:
    clause = query.args.get("with_")
    visible = dict(queries)
    for cte in clause.expressions if isinstance(clause, exp.With) else ():
        try:
            columns = _renamed(_outputs(cte.this, tables, visible), cte.args.get("alias"))
        except _UnknownError:
            continue
        visible[cte.alias.lower()] = columns
        yield cte.alias.lower(), columns


def _renamed(columns: list[OutputColumn], alias: exp.Expr | None) -> list[OutputColumn]:
    names = alias.columns if isinstance(alias, exp.TableAlias) else []
    if not names:
        return columns
    if len(names) != len(columns):
        raise _UnknownError
    return [replace(column, name=name.name) for column, name in zip(columns, names, strict=True)]


def _selected(query: exp.Select, tables: Tables, queries: _Queries) -> Iterator[OutputColumn]:
    for item in query.expressions:
        value = item.unalias()
        if isinstance(item, exp.Aliases):
            yield from (OutputColumn(name.name, item.this) for name in item.expressions)
        elif isinstance(item, exp.Alias):
            yield OutputColumn(item.alias, value)
        elif isinstance(value, exp.Star):
            _require_plain(value)
            yield from _starred(query, tables, queries)
        elif isinstance(value, exp.Column) and isinstance(value.this, exp.Star):
            _require_plain(value.this)
            yield from _source(query, value.table, tables, queries)
        elif isinstance(value, exp.Column | exp.Dot):
            yield OutputColumn(value.name, value)
        elif isinstance(value, exp.Func) and _called(value) in _GENERATORS:
            raise _UnknownError  # it gives columns of its own
        else:
            yield OutputColumn("", value)


def _called(value: exp.Func) -> str:
    name = value.name if isinstance(value, exp.Anonymous) else value.sql_name()
    return name.lower().removesuffix("_outer")


def _require_plain(star: exp.Star) -> None:
    if any(star.args.values()):
        raise _UnknownError


def _sources(query: exp.Select) -> list[tuple[exp.Expr, exp.Join | None]]:
    start = query.args.get("from_")
    if start is None or query.args.get("laterals") or query.args.get("pivots"):
        raise _UnknownError
    joins = query.args.get("joins") or []
    return [(start.this, None), *((join.this, join) for join in joins)]


def _starred(query: exp.Select, tables: Tables, queries: _Queries) -> Iterator[OutputColumn]:
    columns: list[OutputColumn] = []
    for source, join in _sources(query):
        if join is not None and str(join.args.get("kind") or "").upper() in _ONE_SIDED:
            continue
        more = _columns(source, tables, queries)
        if join is not None and (join.args.get("method") or join.args.get("using")):
            columns = _merged(columns, more, join)
        else:
            columns += more
    yield from columns


def _merged(
    left: list[OutputColumn], right: list[OutputColumn], join: exp.Join
) -> list[OutputColumn]:
    """Put the columns of USING first, once each, as Spark does for INNER and LEFT."""
    side = str(join.args.get("side") or "").upper()
    if join.args.get("method") or side not in {"", "LEFT"}:
        raise _UnknownError
    using = [name.name.lower() for name in join.args.get("using") or ()]
    first = [column for name in using for column in left if column.name.lower() == name]
    return [*first, *(column for column in (*left, *right) if column.name.lower() not in using)]


def _source(query: exp.Select, name: str, tables: Tables, queries: _Queries) -> list[OutputColumn]:
    for source, _ in _sources(query):
        if source.alias_or_name.lower() == name.lower():
            return _columns(source, tables, queries)
    raise _UnknownError


def _columns(source: exp.Expr, tables: Tables, queries: _Queries) -> list[OutputColumn]:
    alias = source.args.get("alias")
    match source:
        case exp.Table() if source.args.get("pivots") or source.args.get("sample"):
            raise _UnknownError
        case exp.Table() if not source.db and source.name.lower() in queries:
            inner = queries[source.name.lower()]
            return _renamed([OutputColumn(column.name) for column in inner], alias)
        case exp.Table():
            names = tables.get(TableName(source.db or "public", source.name))
            if names is None:
                raise _UnknownError
            return _renamed([OutputColumn(name) for name in names], alias)
        case exp.Subquery():
            inner = _outputs(source.this, tables, queries)
            return _renamed([OutputColumn(column.name) for column in inner], alias)
        case _:
            raise _UnknownError
