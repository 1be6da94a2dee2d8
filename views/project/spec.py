"""A view's declaration: its name, tables, key and sinks.

The two kinds differ only in `source`: the text of a query, or a function over DataFrames. Both
files, `views/NAME.sql` and `views/NAME.py`, are read into this one value by `views.kinds`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from changelog.contract.base.errors import TableCopiedError, VerdictError, ViewError
from changelog.contract.log.frontier import COPIED
from changelog.contract.rows.relation import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VIEW_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
DEFAULT_SINKS = ("delta",)

Transform = Callable[[Mapping[TableName, "DataFrame"]], "DataFrame"]
"""What a Python view does: the states of its tables in, its rows out."""


@dataclass(frozen=True, slots=True)
class TableReference:
    """One place in a query's text that names a table."""

    table: TableName  # the table that is meant
    start: int  # place of the reference's first character in the text
    end: int  # place behind its last one
    # the name under which the query speaks of it, or None when the query gave one
    alias: str | None
    qualified: bool = False  # whether its schema is written; a view has none


@dataclass(frozen=True, slots=True)
class SqlSource:
    """A query in a view's SQL."""

    text: str = field(repr=False)  # the whole file, as its author wrote it
    references: tuple[TableReference, ...]  # where it names tables, in the order of the text
    # places of schema names before a column (`public.` of `public.a.b`)
    qualifiers: tuple[tuple[int, int], ...] = ()
    # the other views that it names, by name
    views: Mapping[str, SqlSource] = field(default_factory=dict)
    # the file with the queries of these views in their places; empty without any
    inlined: str = field(default="", repr=False)
    # places where Spark reads quotes otherwise, and the text for it: a name in double quotes is a
    # text to Spark, and a doubled quote in a text is nothing to Spark 4.0
    quoted: tuple[tuple[int, int, str], ...] = ()
    # names of the columns that it gives, as far as its text alone tells them
    columns: tuple[str, ...] = ()
    # as its author wrote it, where this one was changed to mean in the engines what that one means
    # in PostgreSQL
    written: SqlSource | None = None
    dialect: str = "spark"  # the language of the text, or `postgres`; the engines get Spark's

    @property
    def sql(self) -> str:
        """Return one query over tables alone."""
        return self.inlined or self.text

    def view_at(self, place: TableReference) -> SqlSource | None:
        """Return the view that a place names, or None when it names a table."""
        return None if place.qualified else self.views.get(place.table.table)

    def tables(self) -> Iterator[TableName]:
        """Yield the table of each place, also in the views that it names."""
        for place in self.references:
            view = self.view_at(place)
            if view is None:
                yield place.table
            else:
                yield from view.tables()

    def all_views(self) -> tuple[str, ...]:
        """Return the names of the views that it reads, directly or through others, each once."""
        views = self.views if self.written is None else self.written.views
        names = [name for v, source in views.items() for name in (v, *source.all_views())]
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class PythonSource:
    """A function over DataFrames."""

    transform: Transform


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSpec:
    """The declaration of one view."""

    name: str  # also the name of its file, table, alias and key prefix
    path: Path  # the file that declares it
    # the tables that it reads, each once, in the order of first mention; also those of the views
    # that it names
    tables: tuple[TableName, ...]
    key: tuple[str, ...]  # its key's columns; no two rows share a key and no part of one is null
    sinks: tuple[str, ...]  # where it is served
    source: SqlSource | PythonSource  # the query or the function
    description: str = ""  # a sentence for `--list`, or an empty string
    # whether its table has a row for each version of its rows, in place of the last ones
    history: bool = False
    # what a Python view reads of a table, where it says so; else it is given all
    columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    # by sink what its author wants of it, as `views/NAME.KIND.json` says
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # the literals that stand for the parameters that it names, by name; also those of the views
    # that it names
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Return `sql` or `python`."""
        return "sql" if isinstance(self.source, SqlSource) else "python"

    @property
    def sql(self) -> str | None:
        """Return one query over tables alone, or None for a Python view."""
        return self.source.sql if isinstance(self.source, SqlSource) else None

    @property
    def views(self) -> tuple[str, ...]:
        """Return the names of the other views that are computed inside of it."""
        return self.source.all_views() if isinstance(self.source, SqlSource) else ()


def check_view_name(name: str) -> str:
    """Return `name` when it can be a view's, which also keeps it from being a path."""
    if VIEW_NAME.fullmatch(name):
        return name
    raise ViewError(
        f"{name!r} cannot be the name of a view",
        hint="lower-case letters, digits and _, a letter first, at most 63 characters",
    )


def parse_table(text: str) -> TableName:
    """Read `table` or `schema.table`; a bare name is of the schema `public`."""
    table = TableName.parse(text)
    if table is None:
        raise ViewError(
            f"{text!r} does not name a table",
            hint='write table or schema.table; a part with a dot in "quotes"',
        )
    return table


def short_name(table: TableName) -> str:
    """Return a table's name as a view writes it: without its schema when that is `public`."""
    return str(table).removeprefix("public.") if table.schema == "public" else str(table)


def check_declared(subject: str, names: Iterable[Any], path: Path) -> tuple[str, ...]:
    """Return the names of a header or decorator argument."""
    listed = tuple(names)
    if not listed:
        raise ViewError(
            f"{path.name} declares no {subject}", hint=f"give its {subject}, such as `id`"
        )
    for name in listed:
        if not isinstance(name, str) or not name.strip():
            raise ViewError(f"{path.name}: {name!r} cannot be in its {subject}")
        if listed.count(name) > 1:
            raise ViewError(f"{path.name} names {name!r} twice in its {subject}")
    return listed


def check_captured(
    spec: ViewSpec,
    captured: Iterable[TableName],
    excluded: Mapping[TableName, str] = MappingProxyType({}),
) -> None:
    """Require that each table of a view is captured.

    `captured`: the tables that the frontier speaks of. `excluded`: those of which it does not for
    the moment, with the reason.
    """
    logged = sorted(captured)
    check_distinct(spec, {*logged, *excluded})
    for table in spec.tables:
        if table in excluded:
            is_copied = excluded[table].startswith(COPIED)
            raise (TableCopiedError if is_copied else VerdictError)(
                f'view "{spec.name}" reads table "{short_name(table)}", which is excluded: '
                f"{excluded[table]}",
                hint="`changelog status` says what to do",
            )
        if table not in logged:
            names = [short_name(name) for name in logged]
            near = get_close_matches(short_name(table), names, n=1)
            raise ViewError(
                f'view "{spec.name}" reads table "{short_name(table)}", which is not captured',
                hint=(f"did you mean {near[0]}? " if near else "")
                + f"captured: {', '.join(names) or 'nothing'}",
            )


def check_distinct(spec: ViewSpec, tables: Collection[TableName]) -> None:
    """Require that no other view that a view names has the name of a table."""
    for name in spec.views:
        if TableName("public", name) in tables:
            raise ViewError(
                f'view "{spec.name}" reads "{name}", which is a view of the project and a table '
                "of the log",
                hint=f"write public.{name} for the table, or rename views/{name}.sql",
            )
