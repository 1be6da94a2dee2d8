"""Analyse a view before Spark starts: its columns, whether it can be proved, how it is refreshed.

The schemas of its tables are read; sqlglot, and DuckDB over empty tables, do the rest. So a view
that the verifier would refuse after its rows were computed is refused before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

import duckdb
import sqlglot
from pyspark.sql.types import StructType
from sqlglot import exp
from sqlglot.errors import SqlglotError

from changelog.contract.base.errors import ViewError
from changelog.contract.log.order import PLACE_COLUMNS
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedSchema
from changelog.runtime.closed_database import closed_database
from views.base.spark_sql import SparkSql
from views.project.lineage import NO_DELTA, KeyLineage, Untraceable, trace
from views.project.output import OutputColumn, outputs, spelled
from views.project.spec import SqlSource, ViewSpec, short_name
from views.project.sql import rewritten
from views.rebuild.plan.costs import Cost, costs_by_key, costs_of_all
from views.rebuild.plan.dialect import UnknownValueError, local_sql
from views.rebuild.plan.other_types import other_types
from views.rebuild.plan.parts import annotated
from views.rebuild.plan.shape import shape_of
from views.rebuild.plan.ties import open_order
from views.verify.processes.scratch import answers
from views.verify.sql.evaluate import computed_float
from views.verify.sql.translate import MACROS, Translation, UnverifiableError, translate
from views.verify.values.names import folded, reading_name
from views.verify.values.types import Type, duckdb_type, logged_type, quoted

_UNKNOWN = re.compile(r"Column '?\"?([^'\"]+)'?\"? could not be resolved|Unknown column: (\S+)")
_ANY_NAME = {"postgres", "cache"}
"""Sinks that accept a column under the name that Spark derives from its expression."""
_TAKES_ALL = {"delta": "a Delta table", "iceberg": "a table of Iceberg"}
"""Sinks that no delta goes to, which a follower writes anew."""
# DuckDB's errors, and what to say to the author of a view instead.
_OF_DUCKDB = (
    (
        re.compile(r'column "(.+)" must appear in the GROUP BY'),
        (
            'column "{0}" is neither under GROUP BY nor in an aggregate function: group by it, or '
            "take one of its values, such as max({0})"
        ),
    ),
    (
        re.compile(r"WHERE clause cannot contain (aggregates|window functions)"),
        (
            "WHERE holds {0}, which are computed after it: put the query into a subquery, and the "
            "condition round it"
        ),
    ),
    (
        re.compile(r"Subquery returns (\d+) columns"),
        "a query in brackets gives {0} columns where one value is wanted",
    ),
    (
        re.compile(r"Set operations can only apply"),
        "the queries of UNION, INTERSECT or EXCEPT have different numbers of columns",
    ),
    (
        re.compile(r"argument types '-\((?:VARCHAR|BOOLEAN|BLOB).*INTEGER"),
        (
            "a frame by RANGE counts from a number or a date, and its ORDER BY has another type: "
            "write ROWS"
        ),
    ),
)
_SENT = {"keys": "changed keys", "differences": "what differs"}
"""The words that `--plan` prints for each value of `Follow.sent`."""
PYTHON = "a view in Python is not computed a second time: the tables that it reads are verified"


@dataclass(frozen=True, slots=True)
class Follow:
    """The way in which --follow keeps a view fresh."""

    sent: str  # `keys`: changed keys; `differences` of all rows; `whole`: a new generation
    by_spark: str = ""  # why Spark has to compute it; empty where the follower does
    why: str = ""  # why computing the changed keys is not enough
    costs: tuple[Cost, ...] = ()  # of a changed row of each table

    def line(self) -> str:
        """Return the way as a line for people."""
        if self.sent == "keys":
            by = f", by Spark: {self.by_spark}" if self.by_spark else ", without Spark"
            return f"--follow computes the rows of changed keys{by}"
        if self.sent == "differences":
            return f"--follow computes all rows, without Spark, and sends what differs: {self.why}"
        return f"--follow writes all rows anew, by Spark: {self.by_spark}"

    def to_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "follow": self.sent,
            "follow_by_spark": self.by_spark or None,
            "follow_why": self.why or None,
            "follow_costs": [cost.to_json() for cost in self.costs],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Facts about a view before it is built."""

    unprovable: str | None  # why its rows cannot be computed a second time; None if they can
    # why a refresh computes all rows; None if it computes the changed ones
    whole: str | None
    follow: Follow  # how --follow keeps it fresh
    # the columns of its key as the view spells them; empty if not known
    key: tuple[str, ...] = ()
    # its columns, with types as far as they are known; None if the columns are not known
    shape: StructType | None = None
    # a sentence for each value that differs from PostgreSQL's, or has another type
    other_types: tuple[str, ...] = ()
    # Spark's SQL of a view in PostgreSQL's SQL; empty for other views
    translated: str = ""

    def lines(self) -> list[str]:
        """Return the analysis as lines for people."""
        proof = "every row" if self.unprovable is None else f"none: {self.unprovable}"
        refresh = "the rows that changed" if self.whole is None else f"all rows: {self.whole}"
        dialect = [f"PostgreSQL's SQL, computed as: {self.translated}"] if self.translated else []
        return [
            *dialect,
            f"proof: {proof}",
            f"a refresh computes {refresh}",
            self.follow.line(),
            *(f"  {cost.line()}" for cost in self.follow.costs),
            *self.other_types,
        ]

    def line(self) -> str:
        """Return the analysis as one line."""
        return "; ".join(line for line in self.lines() if not line.startswith(" "))

    def words(self) -> tuple[str, str]:
        """Return proof and refresh in short, for a list of views."""
        refresh = "changed rows" if self.whole is None else "all rows"
        if self.whole is not None and self.follow.sent != "whole":
            refresh = f"all rows, {_SENT[self.follow.sent]} by --follow"
        return "every row" if self.unprovable is None else "none", refresh

    def to_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "provable": self.unprovable is None,
            "unprovable": self.unprovable,
            "refresh": "rows" if self.whole is None else "whole",
            "refresh_whole": self.whole,
            **self.follow.to_json(),
            "other_types": list(self.other_types),
            "dialect": "postgres" if self.translated else "spark",
            "translated": self.translated or None,
        }


def analyse(
    spec: ViewSpec, schemas: Mapping[TableName, LoggedSchema], engine: Engine | None = None
) -> Analysis:
    """Analyse a view over captured tables; several views may share an engine.

    Raises ViewError: it reads a column that none of its tables has, lacks a column of its key, or
    has a column without a name, or two of the same name.
    """
    if engine is None:
        with Engine() as own_engine:
            return analyse(spec, schemas, own_engine)
    if not isinstance(spec.source, SqlSource):
        why = "it is made by a function"
        return Analysis(unprovable=PYTHON, whole=why, follow=Follow("whole", why))
    is_postgres = spec.source.written is not None and spec.source.written.dialect == "postgres"
    translated = spec.source.sql if is_postgres else ""
    own = {table: schemas[table] for table in spec.tables}
    columns = {table: [c.column for c in schema.columns] for table, schema in own.items()}
    keys = {table: schema.key for table, schema in own.items()}
    query = sqlglot.parse_one(spec.source.sql, read=SparkSql)
    output_columns = outputs(query, columns)
    key = (
        spec.key
        if output_columns is None
        else spelled(spec.key, [column.name for column in output_columns])
    )
    lineage = trace(spec.source, key, columns, keys, query)
    whole = lineage.why if isinstance(lineage, Untraceable) else None
    if whole is None and "delta" not in spec.sinks:
        whole = NO_DELTA
    follow = _follow(spec, spec.source, lineage, own)
    types = {
        table: {column.column: logged_type(column.type) for column in schema.columns}
        for table, schema in own.items()
    }
    unprovable, described = None, list[str]()
    try:
        translation = translate(spec.source.sql, types)
        described = engine.types_of(translation, types)
        unprovable = _float_key(key, translation, described)
    except UnverifiableError as error:
        _check_columns(spec, str(error), columns)
        unprovable = str(error.args[0])
    if output_columns is None:
        return Analysis(
            unprovable=unprovable, whole=whole, follow=follow, key=key, translated=translated
        )
    unprovable = _check_names(spec, key, output_columns) or unprovable
    column_types = {t: {c.column: c.type for c in schema.columns} for t, schema in own.items()}
    typed = annotated(spec.source.sql, column_types)
    if unprovable is None:
        rows = {table: schema.key or PLACE_COLUMNS for table, schema in own.items()}
        unprovable = open_order(typed, rows, key)
    return Analysis(
        unprovable=unprovable,
        whole=whole,
        follow=follow,
        key=key,
        shape=shape_of(output_columns, described, query, own),
        translated=translated,
        other_types=()
        if is_postgres
        else other_types(
            typed,
            spec.source.sql,
            column_types,
            {
                table: {c.column for c in schema.columns if not c.nullable}
                for table, schema in own.items()
            },
        ),
    )


def _follow(
    spec: ViewSpec,
    source: SqlSource,
    lineage: KeyLineage | Untraceable,
    schemas: Mapping[TableName, LoggedSchema],
) -> Follow:
    why = lineage.why if isinstance(lineage, Untraceable) else ""
    by_spark = costs_of_all(spec.tables, "by Spark", {})
    for sink, taker in _TAKES_ALL.items():
        if sink in spec.sinks:
            return Follow("whole", f"{taker} takes all rows of a view", costs=by_spark)
    if spec.views or not all(schema.key for schema in schemas.values()):
        return Follow("whole", why, costs=by_spark)
    names = {place: f"place_{number}" for number, place in enumerate(source.references)}
    tables = {
        name: {column.column.lower(): column.type for column in schemas[place.table].columns}
        for place, name in names.items()
    }
    keys = {table: schema.key for table, schema in schemas.items()}
    try:
        local = local_sql(rewritten(source, names), tables)
    except UnknownValueError as error:
        if isinstance(lineage, Untraceable):
            return Follow("whole", f"{why}, and {error}", costs=by_spark)
        return Follow("keys", str(error), costs=costs_by_key(lineage, {}, keys))
    used = {place: local.used[name] for place, name in names.items()}
    if isinstance(lineage, Untraceable):
        read: dict[TableName, list[str]] = {}
        for place, columns in used.items():
            columns_read = read.setdefault(place.table, [])
            columns_read += [column for column in columns if column not in columns_read]
        costs = costs_of_all(spec.tables, "without Spark", read)
        return Follow("differences", why=why, costs=costs)
    return Follow("keys", costs=costs_by_key(lineage, used, keys))


def _float_key(
    key: Sequence[str], translation: Translation, described: Sequence[str]
) -> str | None:
    """Return the reason why rows cannot be found by a key of computed floats, if it has any."""
    kinds = dict(zip(map(str.lower, translation.names), described, strict=False))
    bare = {name.lower() for name in translation.bare}
    for name in map(str.lower, key):
        if name not in bare and kinds.get(name) in {"FLOAT", "DOUBLE"}:
            return computed_float(name)
    return None


def _check_names(
    spec: ViewSpec, key: Sequence[str], output_columns: Sequence[OutputColumn]
) -> str | None:
    """Refuse missing and duplicate names; returns why a missing name prevents a proof, or None."""
    names = [column.name for column in output_columns]
    lowered = [name.lower() for name in names if name]
    if twice := sorted({name for name in names if lowered.count(name.lower()) > 1}):
        raise ViewError(
            f'view "{spec.name}" has two columns called {" and ".join(twice)}',
            hint="give each column its own name with AS; names that differ in case are the same",
        )
    if missing := [name for name in key if name not in names]:
        raise ViewError(
            f'view "{spec.name}" has no column {", ".join(missing)}, which its key names',
            hint=f"it has {', '.join(filter(None, names))}",
        )
    for place, column in enumerate(output_columns, 1):
        if not column.name:
            why = f"column {place}, {column.text}, has no name"
            if {*spec.sinks} <= _ANY_NAME:
                return f"{why}: name it with AS"
            raise ViewError(f'view "{spec.name}": {why}', hint="name it with AS")
    return None


class Engine:
    """DuckDB with empty tables, for analysing several views; a context manager."""

    def __init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self._database = closed_database()
        self._tables: set[TableName] = set()
        for macro in MACROS:
            self._database.execute(macro)

    def __enter__(self) -> Self:
        """Return the engine."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the database."""
        self._database.close()

    def types_of(
        self, translation: Translation, types: Mapping[TableName, Mapping[str, Type]]
    ) -> list[str]:
        """Return the types of the columns of a query."""
        for table, columns in types.items():
            if table in self._tables:
                continue
            self._tables.add(table)
            listed = ", ".join(
                f"{quoted(folded(name))} {duckdb_type(kind)}" for name, kind in columns.items()
            )
            self._database.execute(f"CREATE TABLE {reading_name(table)} ({listed})")
        try:
            described = self._database.execute(f"DESCRIBE {translation.sql}").fetchall()
        except duckdb.Error as error:
            if not answers(self._database):  # the next view gets a new database
                self._database.close()
                self._open()
            why = _explained(str(error).partition("\n")[0])
            raise UnverifiableError(f"cannot verify this SQL: {why}") from error
        return [str(row[1]) for row in described]


def _explained(text: str) -> str:
    """Return an error of DuckDB's parser or binder in terms of the view's SQL."""
    for form, explanation in _OF_DUCKDB:
        if (match := form.search(text)) is not None:
            return explanation.format(*match.groups())
    return f"DuckDB: {text}"


def _check_columns(
    spec: ViewSpec, message: str, columns: Mapping[TableName, Sequence[str]]
) -> None:
    """Refuse a column that is neither in a table nor named by the query itself."""
    unknown = _UNKNOWN.search(message)
    if unknown is None:
        return
    qualifier, _, name = (unknown[1] or unknown[2]).rpartition(".")
    existing = {column for listed in columns.values() for column in listed}
    having = [t for t, listed in columns.items() if name.lower() in {c.lower() for c in listed}]
    if not qualifier and len(having) > 1:
        tables = " and ".join(map(short_name, having))
        raise ViewError(
            f'view "{spec.name}" reads a column "{name}", which is in {tables}',
            hint="write the table, or its alias, before the column",
        )
    places = spec.source.references if isinstance(spec.source, SqlSource) else ()
    if not qualifier and having and len(places) > 1:
        raise ViewError(
            f'view "{spec.name}" reads a column "{name}", which several of its tables have',
            hint="write the table's alias before the column",
        )
    if name.lower() in {column.lower() for column in existing} | _aliases(spec.sql or ""):
        return
    near = get_close_matches(name, existing, n=1)
    tables = "; ".join(f"{short_name(t)} has {', '.join(listed)}" for t, listed in columns.items())
    raise ViewError(
        f'view "{spec.name}" reads a column "{name}", which none of its tables has',
        hint=(f"did you mean {near[0]}? " if near else "") + tables,
    )


def _aliases(sql: str) -> set[str]:
    """Return the names that a query itself gives to columns, in lower case."""
    try:
        parsed = sqlglot.parse_one(sql, read=SparkSql)
    except SqlglotError:
        return set()
    return {node.alias.lower() for node in parsed.find_all(exp.Alias)} | {
        column.name.lower() for node in parsed.find_all(exp.TableAlias) for column in node.columns
    }
