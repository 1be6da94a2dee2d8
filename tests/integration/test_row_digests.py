"""Digests of rows in PostgreSQL, Spark and DuckDB, and by the program of docs/certificate.md."""

from __future__ import annotations

import hashlib
from contextlib import closing

import psycopg2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg2 import sql

from tests.property.test_row_digest import IN_DUCKDB, by_the_page, in_duckdb
from tests.support.row_digests import (
    DATE_END,
    KINDS,
    MOMENT_END,
    TYPES,
    arrow_table,
    edge_rows,
    json_text,
    rows_of,
)
from tests.support.sql import execute
from views.certificates.postgres_digest import digest_statement
from views.certificates.spark_digest import spark_digest
from views.verify.values.types import parse_type

pytestmark = [pytest.mark.services, pytest.mark.spark]

SCALARS = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
NAMES = list(TYPES)
_DAY_US = 86_400_000_000


def native(kind):
    """Return the type of a column of PostgreSQL that a sink makes."""
    inner = {field.name for _, field in kind.fields}
    if kind.name in {"struct", "map"} or inner & {"struct", "map", "array"}:
        return "jsonb"
    if kind.name == "array":
        return f"{native(kind.fields[0][1])}[]"
    if kind.name == "decimal":
        return f"numeric({kind.precision},{kind.scale})"
    return SCALARS[kind.name]


def literal(value, kind):  # noqa: PLR0911 - one for each type
    """Return a value in PostgreSQL's SQL, without its own way through text where that rounds."""
    if value is None:
        return sql.SQL("NULL::" + native(kind))
    if native(kind) == "jsonb":
        return sql.SQL("{}::jsonb").format(sql.Literal(json_text(value, kind)))
    match kind.name:
        case "array":
            items = [literal(item, kind.fields[0][1]) for item in value]
            return sql.SQL("ARRAY[{}]::" + native(kind)).format(sql.SQL(", ").join(items))
        case "float" | "double":
            return sql.SQL("{}::" + native(kind)).format(sql.Literal(repr(value)))
        case "date":
            if abs(value) == DATE_END:
                return sql.SQL("date 'infinity'" if value > 0 else "date '-infinity'")
            return sql.SQL("(date '1970-01-01' + ({}))").format(sql.Literal(value))
        case "timestamp" | "timestamp_ntz":
            if abs(value) == MOMENT_END:
                return sql.SQL(f"{native(kind)} '{'-' * (value < 0)}infinity'")
            days, rest = divmod(value, _DAY_US)
            text = f"{native(kind)} '1970-01-01' + make_interval(days => {{}}, secs => {{}})"
            return sql.SQL(text).format(sql.Literal(days), sql.Literal(rest / 1_000_000))
        case "binary":
            return sql.SQL("{}::bytea").format(sql.Literal("\\x" + value.hex()))
        case _:
            return sql.SQL("({})::" + native(kind)).format(sql.Literal(value))


def in_postgres(dsn, rows, names, key=("id",)):
    columns = [(name, KINDS[name]) for name in names]
    link = psycopg2.connect(dsn, options="-c timezone=UTC -c extra_float_digits=3")
    with closing(link), link.cursor() as cursor:
        made = sql.SQL(", ").join(
            sql.SQL("{} " + native(kind)).format(sql.Identifier(name)) for name, kind in columns
        )
        cursor.execute(sql.SQL("CREATE TEMPORARY TABLE served ({})").format(made))
        for row in rows:
            values = [literal(value, kind) for value, (_, kind) in zip(row, columns, strict=True)]
            cursor.execute(
                sql.SQL("INSERT INTO served VALUES ({})").format(sql.SQL(", ").join(values))
            )
        cursor.execute(digest_statement("served", columns, key, {}))
        return {place: (count, digest) for place, count, digest in cursor.fetchall()}


def in_spark(spark, rows, names, key=("id",)):
    schema = ", ".join(f"`{name}` {TYPES[name]}" for name in names)
    if not rows:
        return spark_digest(spark.createDataFrame([], schema), key)
    frame = spark.createDataFrame(arrow_table(rows, names))
    zoned = [f"CAST(`{n}` AS {TYPES[n]}) AS `{n}`" for n in names]
    return spark_digest(frame.selectExpr(*zoned), key)


def agreed(spark, dsn, rows, names, key=("id",)):
    expected = by_the_page(rows, names, key)
    assert in_postgres(dsn, rows, names, key) == expected
    assert in_spark(spark, rows, names, key) == expected
    assert in_duckdb(rows, names, key) == expected


@pytest.mark.parametrize("name", IN_DUCKDB[1:])
def test_each_edge_of_a_type_has_one_digest_in_all_engines(spark, endpoints, name):
    place = NAMES.index(name)
    rows = [(row[0], row[place]) for row in edge_rows()]
    agreed(spark, endpoints.postgres, rows, ["id", name])


@pytest.mark.parametrize("first", range(1, len(IN_DUCKDB), 9))
@settings(max_examples=3, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(examples=st.data())
def test_generated_rows_have_one_digest_in_all_engines(spark, endpoints, first, examples):
    names = ["id", *IN_DUCKDB[first : first + 9]]
    rows = examples.draw(rows_of(names))
    agreed(spark, endpoints.postgres, rows, names, (names[1], "id"))


def test_a_row_that_differs_in_one_engine_is_told(spark, endpoints):
    rows = [(1, 0.0), (2, 1.5)]
    names = ["id", "double"]
    assert in_postgres(endpoints.postgres, rows, names) != in_spark(
        spark, [(1, -0.0), (2, 1.5)], names
    )


def test_no_rows_have_no_ranges(spark, endpoints):
    agreed(spark, endpoints.postgres, [], ["id", "text"])


TYPES_OF_POSTGRES = {
    "char(4)": ("string", "'a'"),
    "uuid": ("string", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"),
    "jsonb": ("string", '\'{"b": 1.50, "a": null}\''),
    "interval": ("string", "'1 year 2 days 3 seconds'"),
    "time": ("string", "'24:00:00'"),
    "inet": ("string", "'10.0.0.1/8'"),
    "int4range": ("string", "'[1,5)'"),
    "numeric": ("decimal(38,10)", "'NaN'"),
    "char(3)[]": ("array<string>", "ARRAY['a', NULL, 'bcd']"),
}


@pytest.mark.parametrize("native_type", TYPES_OF_POSTGRES)
def test_types_that_only_postgres_has_are_its_text(endpoints, native_type):
    kind, text = TYPES_OF_POSTGRES[native_type]
    (row,) = execute(
        endpoints.postgres,
        "CREATE SCHEMA IF NOT EXISTS digests",
        "DROP TABLE IF EXISTS digests.t",
        f"CREATE TABLE digests.t (id int, v {native_type})",
        f"INSERT INTO digests.t VALUES (1, {text})",
        "SELECT format('%s', v) FROM digests.t",
    )
    columns = [("id", parse_type("int")), ("v", parse_type(kind))]
    ranges = execute(endpoints.postgres, digest_statement("digests.t", columns, ("id",), {}))
    if kind == "array<string>":
        body = b"".join(b"-" if item is None else _text(item) for item in ["a  ", None, "bcd"])
        value = b"l%d:%s" % (len(body), body)
    else:
        value = b"n3:NaN" if kind.startswith("decimal") else _text(row[0])
    assert [digest for *_, digest in ranges] == [hashlib.sha256(b"n1:1" + value).hexdigest()]


def _text(text):
    raw = text.encode()
    return b"s%d:%s" % (len(raw), raw)
