"""Each type and each comparison that a view can make of it: PostgreSQL's answer, or refused.

One database has hostile values of all types. A view's expression is either refused before Spark
starts, or Spark and the verifier give what PostgreSQL gives.
"""

from __future__ import annotations

import io
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import psycopg2
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.schema import read_schema, value_schema
from changelog.contract.rows.text import SESSION_SETTINGS
from changelog.source.tables.catalogue import Catalogue
from tests.support.builders import read_avro
from tests.support.compared_types import (
    CORE,
    DDL,
    MORE,
    OF_A_CONSTANT,
    OF_AGGREGATES,
    OF_ALL_ROWS,
    OF_TEXTS,
    OF_TWO_ROWS,
    WHOLE,
)
from views.meaning.view import as_meant
from views.project.sql import parse_sql_view, sql_frame
from views.verify.sql.evaluate import evaluate
from views.verify.sql.translate import UnverifiableError, translate
from views.verify.values.names import folded, reading_name
from views.verify.values.types import arrow_type, duckdb_type, logged_type, parse_type, quoted

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

TABLES = ("m", "n")
OF_ONE_ROW = "SELECT x.id AS id, y.id AS other, {} FROM m AS x CROSS JOIN m AS y"
OF_SUMS = "SELECT 1 AS id, {} FROM m"
OF_THE_WHOLE = "SELECT id, {} FROM m WHERE id = 1"
SOME = 100
BLANK = {"char(5)", "bpchar", "code"}
QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True)
class Asked:
    """An expression over a column of a type."""

    type: str
    form: str
    text: str

    def __str__(self):
        return f"{self.type}: {self.text}"


def asked_of(types, whole):
    """Return all expressions: of two rows, of all rows, and of whole tables."""
    rows, sums, tables = [], [], []
    for number, (name, values) in enumerate(types.items()):
        one, other = ("'" + value.replace("'", "''") + "'" for value in values[:2])
        blank = "'" + values[0] + "  '" if name in BLANK else one
        column = f"c{number}"
        for constant in dict.fromkeys((one, blank)):
            rows += [
                Asked(name, form, form.format(c=column, a=constant, b=other))
                for form in (*OF_TWO_ROWS, *OF_A_CONSTANT, *OF_TEXTS)
            ]
        sums += [Asked(name, form, form.format(c=column)) for form in OF_AGGREGATES]
        if name in whole:
            texts = [(form, form.format(c=column, a=one, b=other)) for form in OF_ALL_ROWS]
            tables += [Asked(name, *each) for each in texts]
    return list(dict.fromkeys(rows)), sums, tables


class Source:
    """The tables in PostgreSQL, and as the log has them."""

    def __init__(self, dsn, types):
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        self.cursor.execute(DDL)
        for name, value in SESSION_SETTINGS.items():
            self.cursor.execute(f"SET {name} = %s", (value.split(",")[0],))
        listed = ", ".join(f"c{number} {name}" for number, name in enumerate(types))
        count = max(map(len, types.values())) + 1
        for table in TABLES:
            self.cursor.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, {listed})")
            for row in range(count):
                values = [v[row % len(v)] if row < count - 1 else None for v in types.values()]
                if table == "n":
                    values = [v[(row + 1) % len(v)] for v in types.values()]
                marks = ", ".join(["%s"] * (len(values) + 1))
                self.cursor.execute(f"INSERT INTO {table} VALUES ({marks})", [row + 1, *values])
        with closing(psycopg2.connect(dsn)) as second:
            second.autocommit = True
            found = Catalogue(second).tables()
        self.relations = {each.name: each.relation for each in found}
        # As they come back from the registry.
        self.logged = {
            name: read_schema(value_schema(each)) for name, each in self.relations.items()
        }

    def close(self):
        self.connection.close()

    @property
    def columns(self):
        return {n: {c.column: c.type for c in s.columns} for n, s in self.logged.items()}

    def carried(self, table):
        """Return a table's rows as Spark reads them of the log."""
        relation = self.relations[table]
        codec = RowCodec(relation, key_schema_id=1, value_schema_id=2)
        buffer = io.BytesIO()
        self.cursor.copy_expert(f"COPY {table.table} TO STDOUT", buffer)
        rows = []
        for line in buffer.getvalue().splitlines():
            fields = [None if f == b"\\N" else unescaped(f) for f in line.split(b"\t")]
            raw = codec.encode_value(fields)
            rows.append(read_avro(value_schema(relation), raw, physical=True))
        kinds = {c.column: logged_type(c.type) for c in self.logged[table].columns}
        arrays = {
            name: pa.array([physical(row[name], kind) for row in rows], arrow_type(kind))
            for name, kind in kinds.items()
        }
        return pa.table(arrays)

    def answer(self, query):
        """Return PostgreSQL's rows; its error where it has no answer."""
        try:
            self.cursor.execute(query)
            return sorted(
                (tuple(map(plain, row)) for row in self.cursor.fetchall()), key=lambda row: row[:2]
            )
        except psycopg2.Error as error:
            return error


def unescaped(field):
    return field.replace(b"\\t", b"\t").replace(b"\\n", b"\n").replace(b"\\\\", b"\\")


def physical(value, kind):
    """Return a value of the log as Arrow takes it."""
    if value is None:
        return None
    match kind.name:
        case "decimal":
            return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-kind.scale)
        case "array":
            return [physical(each, kind.fields[0][1]) for each in value]
        case _:
            return value


def plain(value):
    """Return a value in a form that all three engines share."""
    match value:
        case memoryview() | bytearray():
            return bytes(value)
        case UUID():
            return str(value)
        case datetime():
            return value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value  # noqa: UP017
        case float():
            return "NaN" if value != value else value + 0.0  # noqa: PLR0124
        case Decimal() if value == value.to_integral_value():
            return int(value)
        case _:
            return value


class Engines:
    """Spark and the verifier over the same rows."""

    def __init__(self, spark, source):
        self.spark, self.source = spark, source
        self.types = {
            table: {name: logged_type(kind) for name, kind in columns.items()}
            for table, columns in source.columns.items()
        }
        self.frames = {}
        self.duckdb = duckdb.connect()
        for number, table in enumerate(self.types):
            given = source.carried(table)
            self.frames[table] = self._frame(given, table)
            kinds = self.types[table]
            listed = ", ".join(f"{quoted(folded(n))} {duckdb_type(k)}" for n, k in kinds.items())
            self.duckdb.execute(f"CREATE TABLE {reading_name(table)} ({listed})")
            self.duckdb.register(f"given_{number}", given)
            self.duckdb.execute(f"INSERT INTO {reading_name(table)} SELECT * FROM given_{number}")

    def _frame(self, given, table):
        frame = self.spark.createDataFrame(given)
        kinds = self.types[table]
        return frame.select(*(F.col(n).cast(spark_type(k)).alias(n) for n, k in kinds.items()))

    def view(self, query):
        """Return a view of a query as it has to be computed."""
        spec = parse_sql_view("v", Path("v.sql"), f"-- key: id\n{query}")
        return as_meant(spec, self.source.columns, dict.fromkeys(self.types, ("id",)))

    def by_spark(self, spec):
        return sorted(
            (tuple(map(plain, row)) for row in self.frame(spec).collect()), key=lambda row: row[:2]
        )

    def frame(self, spec):
        return sql_frame(self.spark, spec.source, self.frames)

    def proves(self, spec):
        """Tell whether the verifier takes the query."""
        try:
            translate(spec.sql, self.types)
        except UnverifiableError:
            return False
        return True

    def by_verifier(self, spec):
        columns = [(name, parse_type(kind)) for name, kind in self.frame(spec).dtypes]
        self.duckdb.execute("DROP TABLE IF EXISTS made")
        evaluate(self.duckdb, "made", spec.sql, self.types, columns)
        rows = self.duckdb.execute("SELECT * FROM made").fetchall()
        return sorted((tuple(map(plain, row)) for row in rows), key=lambda row: row[:2])


def spark_type(kind):
    if kind.name == "array":
        return f"array<{spark_type(kind.fields[0][1])}>"
    return f"decimal({kind.precision},{kind.scale})" if kind.name == "decimal" else kind.name


def compared(source, engines, asked, query):
    """Compare all expressions; return those that differ and those that are taken."""
    wrong, taken = [], []
    for each in asked:
        theirs = source.answer(query.format(f"{each.text} AS e"))
        try:
            spec = engines.view(query.format(f"{each.text} AS e"))
        except ViewError:
            continue
        if isinstance(theirs, Exception):
            if each.form in OF_TEXTS or "{a}" in each.form:
                continue  # no answer of PostgreSQL's that could be another one
            wrong.append(f"{each}: PostgreSQL refuses it: {str(theirs).splitlines()[0]}")
            continue
        taken.append((each, theirs, engines.proves(spec)))
    wrong += differences(engines, query, taken, engines.by_spark, "Spark")
    provable = [each for each in taken if each[2]]
    wrong += differences(engines, query, provable, engines.by_verifier, "the verifier")
    return wrong, [each for each, *_ in taken]


def differences(engines, query, taken, compute, engine):
    """Compute many at once, or each by itself where one cannot be computed."""
    wrong = []
    for start in range(0, len(taken), SOME):
        some = taken[start : start + SOME]
        listed = ", ".join(f"{each.text} AS e{n}" for n, (each, *_) in enumerate(some))
        try:
            rows = compute(engines.view(query.format(listed)))
        except Exception:  # noqa: BLE001 - of any engine
            if len(some) == 1:
                wrong.append(f"{some[0][0]}: {engine} cannot compute it")
                continue
            middle = len(some) // 2
            wrong += differences(engines, query, some[:middle], compute, engine)
            wrong += differences(engines, query, some[middle:], compute, engine)
            continue
        first = 2 if "other" in query else 1
        for place, (each, theirs, _) in enumerate(some):
            ours = [row[first + place] for row in rows]
            expected = [row[first] for row in theirs]
            if ours != expected:
                wrong.append(f"{each}: {engine} {ours}, PostgreSQL {expected}")
    return wrong


def run(spark, database, types, whole):
    """Return what differs, and what is taken, of all expressions."""
    source = Source(database, types)
    wrong, taken = [], []
    try:
        engines = Engines(own_session(spark), source)
        queries = (OF_ONE_ROW, OF_SUMS, OF_THE_WHOLE)
        for query, asked in zip(queries, asked_of(types, whole), strict=True):
            more, some = compared(source, engines, asked, query)
            wrong += more
            taken += some
    finally:
        source.close()
    return wrong, taken


def own_session(spark):
    """Return a session whose plans are for few rows and many columns."""
    made = spark.newSession()
    for name in ("spark.sql.session.timeZone", "spark.sql.ansi.enabled"):
        made.conf.set(name, str(spark.conf.get(name)))
    for name, value in QUICK.items():
        made.conf.set(name, value)
    return made


def test_each_comparison_is_postgresqls_or_refused(spark, database):
    wrong, taken = run(spark, database, CORE, WHOLE)
    assert not wrong, f"{len(wrong)} of {len(taken)}:\n" + "\n".join(wrong)
    forms = {name: {each.form for each in taken if each.type == name} for name in CORE}
    compared_by = {"x.{c} = y.{c}", "x.{c} = {a}", "x.{c} IN ({a}, {b})"}
    assert compared_by < forms["char(5)"] & forms["uuid"] & forms["text"] & forms["mood"]
    assert {"x.{c} < y.{c}", "min({c})", "max({c})"} < forms["char(5)"] & forms["text"]
    for name in ("numeric", "interval", "jsonb", "money", "pair", "numeric(50,10)"):
        assert not forms[name] & {*OF_TWO_ROWS, *OF_A_CONSTANT, "min({c})", "max({c})"}


@pytest.mark.matrix
def test_so_is_each_of_the_other_types(spark, database):
    wrong, taken = run(spark, database, {**CORE, **MORE}, {**CORE, **MORE})
    assert not wrong, f"{len(wrong)} of {len(taken)}:\n" + "\n".join(wrong)
