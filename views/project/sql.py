"""SQL views: `views/NAME.sql`, one query under a header of comments.

Its language is Spark's SQL, or PostgreSQL's under `-- dialect: postgres`, of which only the tables
are read here: the rest has a meaning by the types of their columns (`views.postgres`).

The text that Spark runs is the author's, character for character, except at the places where a
table is named, and at quotes that not every Spark reads alike: a table's place has the temporary
view that holds its state. Generating the query anew from its syntax tree would be shorter and could
change its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError, TokenError

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from views.base.postgres_sql import PostgresSql, name_of
from views.base.spark_sql import SparkSql, doubled_quotes
from views.project.grammar import refuse_unread
from views.project.history import check_history
from views.project.output import outputs, spelled
from views.project.query import query, quoted
from views.project.spec import DEFAULT_SINKS, SqlSource, TableReference, ViewSpec, check_declared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HEADERS = ("key", "sinks", "description", "dialect", "history")
DIALECTS: dict[str, type[Dialect]] = {"spark": SparkSql, "postgres": PostgresSql}
"""The languages of views, and how they are parsed."""
_HEADER = re.compile(r"--\s*([A-Za-z_]+)\s*:\s*(.*?)\s*")
_POSTGRES = (
    "it is PostgreSQL's SQL, and this view is in Spark's: begin the file with "
    "`-- dialect: postgres`, or see docs/sql.md for what both have"
)
_PLACE = re.compile(r"(\d+):(\d+)")
_TABLE_FUNCTIONS = frozenset(
    {"range", "stack", "json_tuple", "variant_explode", "variant_explode_outer"}
    | {f"{name}{outer}" for name in ("explode", "posexplode", "inline") for outer in ("", "_outer")}
)
"""The table functions of Spark that compute rows from their arguments alone."""
_QUOTED = re.compile(r"""(?:^|(?<=,))\s*(`(?:[^`]|``)*`|"(?:[^"]|"")*")\s*(?=,|$)""")
"""A column of a key in quotes, as in SQL: between two commas, or the ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The declaration of a SQL view, apart from its query."""

    dialect: str
    key: tuple[str, ...]  # as its author spelled it
    sinks: tuple[str, ...]
    description: str = ""
    history: bool = False


def parse_sql_view(name: str, path: Path, text: str) -> ViewSpec:
    """Read the declaration and the tables of a SQL view.

    Raises ViewError: the header is incomplete, the SQL does not parse, is not one query, or can
    give another answer each time it runs.
    """
    header = _header(path, text)
    dialect = header.get("dialect", "spark")
    sinks = check_declared("sinks", _split(header.get("sinks", ",".join(DEFAULT_SINKS))), path)
    if (history := header.get("history")) is not None:
        check_history(path, history, dialect, sinks, parsed_query(path, text, dialect))
    declared = Header(
        dialect=dialect,
        key=tuple(_key(header["key"])),
        sinks=sinks,
        description=header.get("description", ""),
        history=history is not None,
    )
    spec = declared_view(name, path, text, declared)
    check_declared("key", spec.key, path)
    return spec


def declared_view(name: str, path: Path, text: str, header: Header) -> ViewSpec:
    """Read the tables of a SQL view whose header is known.

    Raises ViewError: the SQL cannot be a view's.
    """
    source = sql_source(path, text, header.dialect)
    return ViewSpec(
        name=name,
        path=path,
        tables=tuple(dict.fromkeys(source.tables())),
        key=spelled(header.key, source.columns),
        sinks=header.sinks,
        source=source,
        description=header.description,
        history=header.history,
    )


def dialect_of(path: Path, text: str) -> str:
    """Return the language of a view's file, by its header.

    Raises:
        ViewError: the header has a mistake, or the language is none of views.
    """
    dialect = _header(path, text).get("dialect", "spark")
    if dialect not in DIALECTS:
        raise ViewError(
            f'{path.name}: "{dialect}" is no language of views',
            hint="write `-- dialect: postgres`, or `-- dialect: spark`, which is so without it",
        )
    return dialect


def sql_source(path: Path, text: str, dialect: str = "spark") -> SqlSource:
    """Read the tables of a query.

    Raises:
        ViewError: the SQL does not parse, is not one query, names no table, can give another
            answer each time it runs, or is not read so by Spark.
    """
    parsed = parsed_query(path, text, dialect)
    if dialect == "spark":
        _refuse_unprovable(path, parsed)
        refuse_unread(path, text, parsed)
    if dialect == "postgres":
        for identifier in parsed.find_all(exp.Identifier):
            identifier.set("this", name_of(identifier))
    references = tuple(sorted(_references(path, parsed), key=lambda reference: reference.start))
    if not references:
        raise ViewError(f"{path.name} names no table", hint="select from a captured table")
    if dialect == "postgres":
        return SqlSource(text, references, dialect=dialect)
    columns = tuple(column.name for column in outputs(parsed, {}) or ())
    return SqlSource(
        text,
        references,
        tuple(_qualifiers(parsed, references)),
        quoted=tuple(_quotes(path, text, parsed, references)),
        columns=columns,
    )


def rewritten(
    source: SqlSource,
    names: Mapping[TableReference, str],
    start: int = 0,
    end: int | None = None,
) -> str:
    """Return the query's text, or a part of it, with the name of each table replaced.

    `names`: the replacement at each place that names a table, without quotes. `start`: place of the
    part's first character. `end`: place behind its last one.
    """
    end = len(source.text) if end is None else end
    cuts = [(first, last, "") for first, last in source.qualifiers]
    cuts += source.quoted
    for reference in source.references:
        alias = f" AS {quoted(reference.alias)}" if reference.alias is not None else ""
        cuts.append((reference.start, reference.end, quoted(names[reference]) + alias))
    text = source.text[:end]
    for first, last, new in sorted(cuts, reverse=True):
        if start <= first and last <= end:
            text = text[:first] + new + text[last:]
    return text[start:]


def sql_frame(
    spark: SparkSession, source: SqlSource, states: Mapping[TableName, DataFrame]
) -> DataFrame:
    """Return the rows of a SQL view as a DataFrame that is not run."""
    views = {name: sql_frame(spark, view, states) for name, view in source.views.items()}
    frames = {
        reference: states[reference.table]
        if source.view_at(reference) is None
        else views[reference.table.table]
        for reference in source.references
    }
    return query(spark, frames, partial(rewritten, source))


def _key(text: str) -> list[str]:
    """Return the columns of a key; one that has a comma in its name stands in quotes."""
    quoted_names = {f"\0{n}": match[1] for n, match in enumerate(_QUOTED.finditer(text))}
    places = iter(quoted_names)
    parts = _split(_QUOTED.sub(lambda _: next(places), text))
    return [
        quoted_names[part][1:-1].replace(2 * quoted_names[part][0], quoted_names[part][0])
        if part in quoted_names
        else part
        for part in parts
    ]


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text else []


def _is_postgres(text: str) -> bool:
    """Tell whether a text that Spark's SQL refuses is a query of PostgreSQL's."""
    try:
        return bool(sqlglot.parse(text, dialect="postgres"))
    except SqlglotError:
        return False


def _header(path: Path, text: str) -> dict[str, str]:
    """Read the comment lines at the top; other comments are the author's own."""
    headers: dict[str, str] = {}
    for line in text.lstrip("\ufeff").splitlines():
        if line.strip() and not line.lstrip().startswith("--"):
            break
        match = _HEADER.fullmatch(line.strip())
        if match is None:
            continue
        word = match[1].lower()
        if word in headers:
            raise ViewError(f'{path.name} has two headers "{word}"')
        near = get_close_matches(word, _HEADERS, n=1, cutoff=0.7)
        if near and near[0] != word:
            raise ViewError(
                f'{path.name} has a header "{word}", which means nothing here',
                hint=f'did you mean "-- {near[0]}: …"?',
            )
        if word in _HEADERS:
            headers[word] = match[2]
    if not headers.get("key"):
        raise ViewError(
            f"{path.name} does not say what its key is",
            hint="begin the file with `-- key: COLUMN` or `-- key: COLUMN, COLUMN`",
        )
    return headers


def parsed_query(path: Path, text: str, dialect: str) -> exp.Query:
    """Parse a view's text.

    Raises ViewError: it does not parse, or is not one query.
    """
    try:
        parsed = sqlglot.parse(text, dialect=DIALECTS[dialect])
        statements = [part for part in parsed if part is not None]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        place = f"{path.name}:{first.get('line', '?')}:{first.get('col', '?')}"
        near = str(first.get("highlight", "")).strip()
        raise ViewError(
            f"{place}: the SQL does not parse{f' at {near!r}' if near else ''}: "
            + _described(str(first.get("description", error))),
            hint=_POSTGRES if dialect == "spark" and _is_postgres(text) else "",
        ) from error
    except TokenError as error:
        raise ViewError(
            f"{path.name}:{_unclosed(error, text)}: the SQL does not parse: "
            "a quote or a comment is opened and never closed"
        ) from error
    if len(statements) != 1:
        raise ViewError(
            f"{path.name} holds {len(statements)} statements", hint="a view is one SELECT or WITH"
        )
    query = statements[0]
    if not isinstance(query, exp.Select | exp.SetOperation | exp.Subquery):
        first_word = re.sub(r"--[^\n]*\n|/\*.*?\*/", " ", text, flags=re.DOTALL).split()[0]
        line = next(n for n, row in enumerate(text.splitlines(), 1) if _begins(row, first_word))
        raise ViewError(
            f"{path.name}:{line}:1: {first_word!r} does not begin a query",
            hint="a view is one SELECT or WITH",
        )
    return query


def _described(text: str) -> str:
    """Return the sentence of the parser without the parts about itself."""
    if text.startswith("Required keyword"):
        return "an operator or a function lacks a part"
    return text.splitlines()[0].rstrip(".").split(" but got ")[0]


def _begins(line: str, word: str) -> bool:
    return word in line and not line.lstrip().startswith("--")


def _unclosed(error: TokenError, text: str) -> str:
    """Return `line:column` of what is not closed; sqlglot tells it only in the error's cause."""
    match = _PLACE.search(str(error.__cause__))
    if match is None:
        return f"{text.count(chr(10)) + 1}:1"
    line, offset = int(match[1]), int(match[2])  # of the whole text, from 0
    before = sum(len(row) for row in text.splitlines(keepends=True)[: line - 1])
    return f"{line}:{max(offset - before + 1, 1)}"


def _references(path: Path, query: exp.Query) -> Iterator[TableReference]:
    for node in query.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            _check_function(path, node)
            continue
        if not node.db and node.name.lower() in _visible_ctes(node):
            continue
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        if len(parts) > 2:  # noqa: PLR2004  schema and table
            raise ViewError(
                f'{path.name} names "{".".join(part.name for part in parts)}"',
                hint="a captured table is `table` or `schema.table`",
            )
        table = TableName(node.db or "public", node.name)
        start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
        alias = None if node.alias else node.name
        yield TableReference(table, start, end, alias, qualified=bool(node.db))


def _check_function(path: Path, node: exp.Table) -> None:
    """Require that a table function only computes."""
    name = node.this.sql(dialect="spark").partition("(")[0].lower()
    if name not in _TABLE_FUNCTIONS:
        raise ViewError(
            f"{path.name} calls {name}() in place of a table",
            hint=f"a table function of a view is one of {', '.join(sorted(_TABLE_FUNCTIONS))}",
        )


def _visible_ctes(node: exp.Expr) -> set[str]:
    """Return the names, in lower case, of a WITH clause's queries that `node` sees.

    Inside one of those queries the later ones, and itself, are not visible: there such a name
    is still the table's, so `WITH a AS (SELECT * FROM a)` reads table `a`.
    """
    names: set[str] = set()
    child: exp.Expr = node
    while child.parent is not None:
        parent = child.parent
        if isinstance(parent, exp.With):
            before = parent.expressions if parent.recursive else _before(parent, child)
            names |= {cte.alias.lower() for cte in before}
        elif isinstance(clause := parent.args.get("with_"), exp.With) and clause is not child:
            names |= {cte.alias.lower() for cte in clause.expressions}
        child = parent
    return names


def _before(clause: exp.With, cte: exp.Expr) -> list[exp.Expr]:
    place = next(n for n, other in enumerate(clause.expressions) if other is cte)
    return list(clause.expressions[:place])


def _quotes(
    path: Path, text: str, query: exp.Query, references: tuple[TableReference, ...]
) -> Iterator[tuple[int, int, str]]:
    """Find quotes that a Spark reads otherwise, with the text for it.

    Raises:
        ViewError: a name stands in single quotes.
    """
    names = [*_quoted_names(path, text, query, references)]
    yield from names
    for place in doubled_quotes(text):
        if not any(first <= place < last for first, last, _ in names):
            yield place, place + 1, "\\"


def _quoted_names(
    path: Path, text: str, query: exp.Query, references: tuple[TableReference, ...]
) -> Iterator[tuple[int, int, str]]:
    """Find names in double quotes, as in `x AS "Name"`, which Spark takes for texts."""
    for name in query.find_all(exp.Identifier):
        start = name.meta.get("start")
        if start is None or any(
            reference.start <= start < reference.end for reference in references
        ):
            continue
        if text[start] == "'":
            raise ViewError(
                f"{path.name}: '{name.name}' is a text, and stands where a name should",
                hint=f'write it "{name.name}"',
            )
        if text[start] == '"':
            yield start, name.meta["end"] + 1, quoted(name.name)


def _qualifiers(
    query: exp.Query, references: tuple[TableReference, ...]
) -> Iterator[tuple[int, int]]:
    """Find `schema.` before `table.column`, which means nothing to a temporary view.

    `a.b.c` can also be a field of a struct: only the name of a table that the query reads
    without giving it another name is taken for one.
    """
    named = {reference.table for reference in references if reference.alias is not None}
    for column in query.find_all(exp.Column):
        schema, table = column.args.get("db"), column.args.get("table")
        if schema is None or table is None:
            continue
        if TableName(schema.name, table.name) in named:
            yield schema.meta["start"], table.meta["start"]


# A view is proved by computing it a second time with another engine. What is random, depends on
# the clock or takes "some" row cannot come out the same, so the proof would fail for a view that
# is right by its own words; saying so before the rebuild is kinder than a refuted generation.
_CLOCK = "depends on the clock"
_RANDOM = "is random"
_OPEN_PLACE = "depends on where and how the query runs"
_ANY = "takes a row that no order determines"

_TYPES: dict[type[exp.Expr], str] = {
    exp.Rand: _RANDOM,
    exp.Randn: _RANDOM,
    exp.Randstr: _RANDOM,
    exp.Uniform: _RANDOM,
    exp.Shuffle: _RANDOM,
    exp.Uuid: _RANDOM,
    exp.TableSample: _RANDOM,
    exp.CurrentTimestamp: _CLOCK,
    exp.CurrentDate: _CLOCK,
    exp.CurrentTime: _CLOCK,
    exp.CurrentDatetime: _CLOCK,
    exp.Localtimestamp: _CLOCK,
    exp.CurrentUser: _OPEN_PLACE,
    exp.SessionUser: _OPEN_PLACE,
    exp.QueryTransform: "runs a program",
}
_NAMES = {
    "now": _CLOCK,
    "getdate": _CLOCK,
    "current_timezone": _OPEN_PLACE,
    "monotonically_increasing_id": _OPEN_PLACE,
    "spark_partition_id": _OPEN_PLACE,
    "input_file_name": _OPEN_PLACE,
    "input_file_block_start": _OPEN_PLACE,
    "input_file_block_length": _OPEN_PLACE,
    "current_catalog": _OPEN_PLACE,
    "current_database": _OPEN_PLACE,
    "current_schema": _OPEN_PLACE,
    "user": _OPEN_PLACE,
    "version": _OPEN_PLACE,
    "identifier": "takes a name from a text, so that nobody knows what is read",
    "reflect": "calls Java",
    "java_method": "calls Java",
    "try_reflect": "calls Java",
}
_FIRST = (exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.AnyValue)


def _refuse_unprovable(path: Path, query: exp.Query) -> None:
    """Require that a query gives the same answer each time."""
    for node in query.walk():
        reason = _reason(node)
        if reason is None:
            continue
        line = next((part.meta["line"] for part in node.walk() if "line" in part.meta), None)
        place = f"{path.name}:{line}" if line else path.name
        raise ViewError(
            f"{place}: {_called(node)} {reason}, so the view cannot be proved",
            hint="compute it in the source, or select it from a column",
        )


def _reason(node: exp.Expr) -> str | None:
    for kind, reason in _TYPES.items():
        if isinstance(node, kind):
            return reason
    if isinstance(node, exp.Anonymous):
        return _NAMES.get(node.name.lower())
    if isinstance(node, _FIRST) and not _ordered(node):
        return _ANY
    if isinstance(node, exp.Limit | exp.Offset) and not _sorted(node.parent):
        return "without ORDER BY takes rows that no order determines"
    return None


def _ordered(node: exp.Expr) -> bool:
    """Tell whether a first or last value stands over a window with an order."""
    parent = node.parent
    while isinstance(parent, exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return isinstance(parent, exp.Window) and parent.args.get("order") is not None


def _sorted(query: exp.Expr | None) -> bool:
    return query is not None and query.args.get("order") is not None


def _called(node: exp.Expr) -> str:
    if isinstance(node, exp.Limit | exp.Offset | exp.TableSample):
        return type(node).__name__.upper()
    if isinstance(node, exp.QueryTransform):
        return "TRANSFORM … USING"
    if isinstance(node, exp.Anonymous):
        return f"{node.name.lower()}()"
    return f"{(node.sql_name() if isinstance(node, exp.Func) else node.key).lower()}()"
