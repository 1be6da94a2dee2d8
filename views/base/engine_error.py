"""Errors of Spark in the words of a view's author: the column, the cause, and the remedy.

Spark names a condition (`ARITHMETIC_OVERFLOW`), its parameters and the part of the query that
failed. They may come as an exception of PySpark, of a server, or in the text of one of Java's with
the cause further down. The conditions that views meet have sentences of their own here; of any
other the sentence is Spark's, without what is about Spark alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sqlglot
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from sqlglot import exp
from sqlglot.errors import SqlglotError

from changelog.contract.base.secret import redacted
from views.base.spark_sql import SparkSql

log = logging.getLogger("changelog.views")

_WIDER = "cast a side to a wider type first, such as CAST(x AS decimal(38,0)), or leave rows out"
_IN_RANGE = (
    "cast to a wider type, leave such rows out with WHERE, or write CASE WHEN abs(x) < 1e9 "
    "THEN CAST(x AS int) END, which gives null for them, and for NaN"
)
_ROWS = "leave such rows out with WHERE, or give null for them"
_PATTERN = "write it by the letters of Spark's patterns, such as yyyy-MM-dd HH:mm:ss"
_MEMORY = (
    "give Spark more memory (spark.driver.memory, of a cluster spark.executor.memory, under "
    "[spark.settings]), or let the view gather less into one row"
)
_ENDED = (
    "it was killed (out of memory, by the system's log or `dmesg`?), or wrote hs_err_pid….log "
    "in the folder where it ran"
)
_WORDS: Mapping[str, tuple[str, str]] = {
    "ARITHMETIC_OVERFLOW": ("a number is out of the range of its type", _WIDER),
    "BINARY_ARITHMETIC_OVERFLOW": (
        "{value1} {symbol} {value2} is out of the range of its type",
        _WIDER,
    ),
    "CAST_OVERFLOW": (
        "{value} is out of the range of {targetType}",
        _IN_RANGE,
    ),
    "NUMERIC_VALUE_OUT_OF_RANGE": (
        "{value} does not fit decimal({precision},{scale})",
        "cast to a decimal with more digits before the point, or to double, or leave rows out",
    ),
    "DIVIDE_BY_ZERO": ("division by zero", "divide by NULLIF(x, 0), which gives null"),
    "REMAINDER_BY_ZERO": ("division by zero", "divide by NULLIF(x, 0), which gives null"),
    "INTERVAL_DIVIDED_BY_ZERO": ("division by zero", "divide by NULLIF(x, 0)"),
    "INVALID_FORMAT": (
        "the pattern {format} of LIKE has a backslash that escapes nothing",
        "leave such rows out with WHERE, or write contains(x, y), startswith(x, y), endswith(x, y)",
    ),
    "INVALID_EXTRACT_BASE_FIELD_TYPE": (
        "{base} has no fields: it is {other}",
        "write its text, or have the fields as columns of the table in PostgreSQL",
    ),
    "CAST_INVALID_INPUT": (
        "{expression} is no value of type {targetType}",
        "leave such rows out with WHERE, or write TRY_CAST, which gives null for them",
    ),
    "DATETIME_FIELD_OUT_OF_BOUNDS": (
        "a part of a date or time is out of range: {rangeMessage}",
        _ROWS,
    ),
    "INVALID_TYPED_LITERAL": (
        "{value} is no {valueType}",
        "write a day as DATE 'YYYY-MM-DD', a moment as TIMESTAMP_NTZ 'YYYY-MM-DD hh:mm:ss'",
    ),
    "CANNOT_PARSE_TIMESTAMP": ("a text does not match its pattern: {message}", _ROWS),
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION": (
        "the pattern {pattern} of a date or time has letters that Spark refuses",
        _PATTERN,
    ),
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_WEEK_BASED_PATTERN": (
        "the pattern of a date or time counts in weeks (letter {c}), which Spark refuses",
        _PATTERN,
    ),
    "INCONSISTENT_BEHAVIOR_CROSS_VERSION.PARSE_DATETIME_BY_NEW_PARSER": (
        "the text {datetime} does not match the pattern of a date or time in every letter",
        _ROWS,
    ),
    "INVALID_DATETIME_PATTERN": ("{pattern} is no pattern of dates and times", _PATTERN),
    "DATETIME_OVERFLOW": ("a date or time is out of range: {operation}", _ROWS),
    "INVALID_ARRAY_INDEX": (
        "an array of {arraySize} has no element {indexValue}",
        "get(array, n) gives null where there is none",
    ),
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT": (
        "an array of {arraySize} has no element {indexValue}",
        "try_element_at(array, n), which counts from 1, gives null where there is none",
    ),
    "INVALID_INDEX_OF_ZERO": (
        "element_at counts from 1, and is asked for 0",
        "begin at 1, or write get(array, 0), which counts from 0",
    ),
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": (
        "a query in brackets gives several rows where one value is wanted",
        "aggregate it, such as by max(), or join it",
    ),
    "DUPLICATED_MAP_KEY": ("a map gets the key {key} twice", "aggregate its values first"),
    "NULL_MAP_KEY": ("a map gets null as a key", _ROWS),
    "USER_RAISED_EXCEPTION": ("it says {errorMessage}", "the query raises that itself"),
    "UNABLE_TO_ACQUIRE_MEMORY": ("Spark ran out of memory", _MEMORY),
    "AMBIGUOUS_REFERENCE": (
        "the column {name} is one of several: {referenceNames}",
        "write the table, or its alias, before the column",
    ),
    "UNRESOLVED_COLUMN": ("there is no column {objectName}", "the tables have {proposal}"),
    "UNRESOLVED_ROUTINE": ("Spark has no function {routineName}", "docs/sql.md lists those known"),
    "WRONG_NUM_ARGS": (
        "{functionName} takes {expectedNum} arguments, and is given {actualNum}",
        "give it as many",
    ),
    "MISSING_AGGREGATION": (
        "{expression} is neither under GROUP BY nor in an aggregate function",
        "group by it, or take one of its values, such as max()",
    ),
    "INVALID_ATTRIBUTE_NAME_SYNTAX": (
        "Spark cannot read the name {name}",
        "name the column with AS, without dots and backticks",
    ),
}
_INFINITE = (
    "leave such rows out with WHERE, or choose under [rebuild.values] of changelog.toml what views "
    'get of the column: "null", or PostgreSQL\'s "text" (docs/reading.md)'
)
_NO_MOMENT = (
    "{expression} is no value of type {targetType}",
    "leave such rows out with WHERE: what is taken is YYYY-MM-DD, with hh:mm:ss behind it or not",
)
_UNTRIED = (
    (("DATE", "TIMESTAMP"), _NO_MOMENT),
    (("BOOLEAN", "FLOAT", "BINARY"), (_NO_MOMENT[0], _ROWS)),
)
"""Types that TRY_CAST to is not proved, and what is said of them."""
_OVERFLOWS = frozenset({"long overflow", "integer overflow"})
"""What Java says where Spark computes with dates and moments; of numbers there is a condition."""
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]{3,}(?:\.[A-Z0-9_]+)*)\] *")
_CAUSE = re.compile(r"^\s*Caused by: [\w.$]+:?\s*(.+)$", re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*:\s*")
_RAISED = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Warning): [^\n]+)$", re.MULTILINE)
_TRACE = re.compile(
    r"\n\s*(?:at [\w.$]+\(|== |JVM stacktrace|\.\.\. \d+ more)|;\s*line \d+ pos \d+"
)
_ASIDE = re.compile(
    r"\s*(?:SQLSTATE: \w+|If necessary set \S+ to \S+ to bypass this error(?:, and return NULL "
    r"instead)?\.|Please, refer to '[^']*' for a fix\.?)"
)
_NO_MEMORY = re.compile(
    r"OutOfMemoryError|OutOfMemoryException|Java heap space|GC overhead"
    r"|Not enough memory to build and broadcast"
)
_LONGEST = 400
_OWN, _BETWEEN = "view", " \u2016 "
"""At the beginning of a message of ours, and between its parts."""
_WIDEST, _MOST = 80, 3
"""Letters of an expression in a message, and expressions."""


@dataclass(frozen=True, slots=True)
class EngineError:
    """An error of an engine, for people."""

    text: str  # in a sentence, lower case
    hint: str = ""  # what to do about it; empty where nothing is known


@dataclass(frozen=True, slots=True)
class _Found:
    """An error as Spark tells it."""

    condition: str
    text: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    fragment: str = ""


def raised(call: str, why: str, hint: str) -> str:
    """Return the error of a query at a value, in Spark's SQL: `engine_error` reads its message.

    Args:
        call: what is computed, as it stands in the view.
        why: what its value is.
        hint: what to write.
    """
    parts = exp.Literal.string(_BETWEEN.join((_OWN, call, why, hint))).sql("spark")
    return f"raise_error({parts})"


def engine_error(error: BaseException, sql: str | None, moments: Sequence[str] = ()) -> EngineError:
    """Return an error of Spark in words.

    `sql`: the view's query, which tells the column; None of a view in Python. `moments`: its
    expressions that compute with dates and moments, as far as they are known.
    """
    try:
        return _of_engine(error, sql, moments)
    except (Py4JError, ConnectionError) as gone:
        log.debug("no text of %s: %s", type(error).__name__, gone)
        return EngineError("Spark's Java process has ended", _ENDED)


def _of_engine(error: BaseException, sql: str | None, moments: Sequence[str]) -> EngineError:
    # One after the other: texts are asked of Java, which may be ending for want of memory.
    if any(_NO_MEMORY.search(str(cause)) for cause in _chain(error)):
        return EngineError("Spark ran out of memory", _MEMORY)
    chain = list(_chain(error))
    candidates = [finding for cause in chain for finding in _told(cause)]
    worded = [candidate for candidate in candidates if _words_of(candidate.condition) is not None]
    finding = (worded or candidates or [_Found("", _plain(str(error)))])[-1]
    own = _told_by_us(error, finding, sql)
    if own is not None:
        return own
    words = _words_of(finding.condition)
    if finding.condition == "CAST_INVALID_INPUT":
        target = _bare(finding.parameters.get("targetType", ""))
        words = next((pair for kinds, pair in _UNTRIED if target.startswith(kinds)), words)
    text, hint = (
        (finding.text, "") if words is None else (_filled(sentence, finding) for sentence in words)
    )
    where = _where(finding.fragment, sql) or _candidates(finding, sql)
    if finding.text in _OVERFLOWS and words is None:
        text = f"a date, timestamp or interval is infinite or out of range ({finding.text})"
        where = _any_of(moments, sql)
        hint = _INFINITE
    elif finding.condition == "ARITHMETIC_OVERFLOW" and not where:  # of dates there is no place
        hint = f"{hint}; where it is a date or timestamp, it may be infinite: {_INFINITE}"
    return EngineError(f"{where}{text or finding.text}", hint)


def _told_by_us(error: BaseException, finding: _Found, sql: str | None) -> EngineError | None:
    """Return the message of a check of ours in the query, or None for an error of the engine."""
    for text in (finding.parameters.get("errorMessage", ""), str(error)):
        parts = text.partition(f"{_OWN}{_BETWEEN}")[2].split("\n")[0].split(_BETWEEN)
        if len(parts) == len(("call", "why", "hint")):
            return EngineError(f"{_where(parts[0], sql)}{parts[1]}", _ASIDE.sub("", parts[2]))
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes; a Java cause becomes an error of PySpark."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        java = getattr(seen, "java_exception", None)
        seen = (
            _of_java(java) or seen.__cause__
            if java is not None
            else (getattr(seen, "_cause", None) or seen.__cause__)
        )


def _of_java(java: object) -> BaseException | None:
    from pyspark.errors.exceptions.captured import (  # noqa: PLC0415 - needs a JVM
        convert_exception,
    )

    try:
        return convert_exception(java)
    except Exception:  # noqa: BLE001 - its text says enough
        return None


def _told(error: BaseException) -> Iterator[_Found]:
    """Yield the findings of an error: from its parts, and its text, innermost cause last."""
    text = str(error)
    for part in (text, *_CAUSE.findall(text)):
        for match in _CONDITION.finditer(part):
            yield _Found(match[1], _plain(part[match.start() :]))
    if isinstance(error, PySparkException) and (condition := error.getCondition()):
        contexts = error.getQueryContext()
        yield _Found(
            condition,
            _plain(text),
            {name: str(value) for name, value in (error.getMessageParameters() or {}).items()},
            contexts[0].fragment() if contexts else "",
        )


def _words_of(condition: str) -> tuple[str, str] | None:
    return _WORDS.get(condition) or _WORDS.get(condition.partition(".")[0])


def _filled(words: str, finding: _Found) -> str:
    """Put the parameters into a sentence; Spark's own where one is missing."""
    try:
        return words.format_map({n: _bare(value) for n, value in finding.parameters.items()})
    except KeyError:
        return ""


def _bare(value: str) -> str:
    """Return a parameter without the quotes that Spark puts round types and names."""
    return " ".join(value.strip('"').replace("`", "").split())


def _plain(text: str) -> str:
    """Return a message in one line, without class, condition, stack and what is about Spark."""
    causes = _CAUSE.findall(text)
    if "Traceback (most recent call last)" in text and (raised := _RAISED.findall(text)):
        text = raised[-1]
    elif causes and not text.startswith("["):
        text = causes[-1]
    text = _TRACE.split(text, maxsplit=1)[0]
    text = _CONDITION.sub("", _ASIDE.sub("", " ".join(text.split())))
    text = redacted(_CLASS.sub("", text)).strip(" ;") or "no message"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _where(fragment: str, sql: str | None) -> str:
    """Return the column of the view, and the expression, that a part of the query stands in."""
    fragment = " ".join(fragment.split())
    if not fragment:
        return ""
    name = None if sql is None else _column_of(fragment, sql)
    short = _short(fragment.replace("`", ""))
    return f"{short}: " if name is None else f'column "{name}" ({short}): '


def _any_of(places: Sequence[str], sql: str | None) -> str:
    """Return the expressions of which one has failed: a single one with its column."""
    if len(places) == 1:
        return _where(places[0], sql)
    more = "" if len(places) <= _MOST else f" or {len(places) - _MOST} more"
    return f"{' or '.join(map(_short, places[:_MOST]))}{more}: " if places else ""


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _candidates(failure: _Found, sql: str | None) -> str:
    """Return the columns that an error can be of which Spark gives no place."""
    try:
        query = None if sql is None else sqlglot.parse_one(sql, read=SparkSql)
    except (SqlglotError, RecursionError):
        return ""
    if not isinstance(query, exp.Query):
        return ""
    named: dict[str, str] = {}
    inside: set[int] = set()
    for item in [*query.find_all(exp.Alias), *query.selects]:
        for node in item.walk():
            if item.alias_or_name and _may_end(node, failure):
                named.setdefault(item.alias_or_name, _text(node))
                inside.add(id(node))
    loose = [
        _text(node) for node in query.walk() if id(node) not in inside and _may_end(node, failure)
    ]
    if loose:
        return _any_of([*named.values(), *loose], None)
    if len(named) == 1:
        ((name, text),) = named.items()
        return f'column "{name}" ({_short(text)}): '
    return f"column {' or '.join(map(_quoted, named))}: " if named else ""


def _quoted(name: str) -> str:
    return f'"{name}"'


def _may_end(node: exp.Expr, failure: _Found) -> bool:
    """Tell whether an expression can end with an error that has no place."""
    match failure.condition.partition(".")[0]:
        case "CAST_OVERFLOW" if isinstance(node, exp.Cast):
            target = _bare(failure.parameters.get("targetType", ""))
            return node.to.sql("spark").replace(" ", "").lower() == target.replace(" ", "").lower()
        case "SCALAR_SUBQUERY_TOO_MANY_ROWS":
            return _is_open_value(node)
        case "INVALID_FORMAT":
            return isinstance(node, exp.Like | exp.ILike)
        case "DATETIME_FIELD_OUT_OF_BOUNDS":
            return isinstance(node, exp.Anonymous) and node.name.lower() == "make_date"
        case "ARITHMETIC_OVERFLOW":
            return isinstance(node, exp.Neg | exp.Abs | exp.Sum) or (
                isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval)
            )
        case _:
            return False


def _is_open_value(node: exp.Expr) -> bool:
    """Tell whether a query stands for one value, and may give several rows."""
    if not isinstance(node, exp.Subquery) or node.alias or node.arg_key == "query":
        return False
    if isinstance(node.parent, exp.From | exp.Join | exp.SetOperation | exp.Subquery | exp.Lateral):
        return False
    inner = node.unnest()
    if not isinstance(inner, exp.Select) or inner.args.get("group"):
        return True
    sums = [total for item in inner.selects for total in item.find_all(exp.AggFunc)]
    return not any(total.find_ancestor(exp.Window, exp.Select) is inner for total in sums)


def _column_of(fragment: str, sql: str) -> str | None:
    """Return the name of the outermost column that holds an expression, or None if none does."""
    try:
        fragment_text = _text(sqlglot.parse_one(fragment, read=SparkSql))
        query = sqlglot.parse_one(sql, read=SparkSql)
    except (SqlglotError, RecursionError):
        return None
    items = query.selects if isinstance(query, exp.Query) else []
    items += [alias for alias in query.find_all(exp.Alias) if alias not in items]
    for item in items:
        if any(_text(node) == fragment_text for node in item.unalias().walk()):
            return item.alias_or_name or None
    return None


def _text(node: exp.Expr) -> str:
    return node.unnest().sql(dialect="spark").lower()
