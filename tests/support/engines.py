"""Tables of PostgreSQL, and the same rows as the log has them in Spark and in the verifier."""

from __future__ import annotations

import io
from contextlib import closing
from datetime import datetime, timezone
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from uuid import UUID

import duckdb
import psycopg2
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.schema import key_schema, read_schema, value_schema
from changelog.contract.rows.text import SESSION_SETTINGS
from changelog.source.tables.catalogue import Catalogue
from replay.decode.schemas import TopicSchemas
from tests.support.builders import read_avro
from views.meaning.view import as_meant
from views.project.sql import parse_sql_view, sql_frame
from views.rebuild.local.engine import LocalQuery
from views.verify.sql.evaluate import Prepared, evaluate
from views.verify.sql.translate import UnverifiableError, translate
from views.verify.values.names import folded, reading_name
from views.verify.values.types import arrow_type, duckdb_type, logged_type, parse_type, quoted

QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Source:
    """The tables in PostgreSQL, and as the log has them."""

    def __init__(self, dsn, ddl, fill):
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        # Python's own has no 24:00:00.
        as_text = psycopg2.extensions.new_type((1083,), "TIME", lambda value, _: value)
        psycopg2.extensions.register_type(as_text, self.connection)
        self.cursor = self.connection.cursor()
        self.cursor.execute(ddl)
        for name, value in SESSION_SETTINGS.items():
            self.cursor.execute(f"SET {name} = %s", (value.split(",")[0],))
        fill(self.cursor)
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
            return in_order(tuple(map(plain, row)) for row in self.cursor.fetchall())
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


def in_order(rows):
    """Return rows by their first two columns, nulls first."""
    return sorted(rows, key=lambda row: [(value is not None, value or 0) for value in row[:2]])


class Engines:
    """Spark and the verifier over the same rows."""

    def __init__(self, spark, source):
        self.spark, self.source = spark, source
        self.types = {
            table: {name: logged_type(kind) for name, kind in columns.items()}
            for table, columns in source.columns.items()
        }
        self.frames = {}
        self.duckdb, self.prepared = duckdb.connect(), Prepared()
        self.prepared.functions(self.duckdb)
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

    def view(self, query, key="id", dialect="spark"):
        header = f"-- key: {key}\n-- dialect: {dialect}\n"
        spec = parse_sql_view("v", Path("v.sql"), f"{header}{query}")
        return as_meant(
            spec, self.source.columns, {name: each.key for name, each in self.source.logged.items()}
        )

    def by_spark(self, spec):
        return in_order(tuple(map(plain, row)) for row in self.frame(spec).collect())

    def by_follower(self, spec):
        """Return the rows that DataFusion computes; UnknownValueError if it is not known to."""
        return self.followed(spec)()

    def followed(self, spec):
        """Return a function that computes a view by DataFusion, of all rows or of chosen ones."""
        query = LocalQuery(spec.source, self.schemas, self.frame(spec).schema)

        def rows(chosen=lambda table: table):
            places = spec.source.references
            return query.rows({place: chosen(self.local[place.table]) for place in places})

        return rows

    @cached_property
    def local(self):
        """The tables as a follower has them."""
        tables = {name: frame.toArrow() for name, frame in self.frames.items()}
        return {
            name: each.rename_columns([folded(column) for column in each.column_names])
            for name, each in tables.items()
        }

    @cached_property
    def schemas(self):
        return {
            name: TopicSchemas(name.table, 1, {2: value_schema(each)}, 2, key=key_schema(each))
            for name, each in self.source.relations.items()
        }

    def frame(self, spec):
        return sql_frame(self.spark, spec.source, self.frames)

    def proves(self, spec):
        """Tell whether the verifier takes the query."""
        try:
            made = translate(spec.sql, self.types)
            self.duckdb.execute(f"DESCRIBE {made.sql}")  # as a plan does
        except (UnverifiableError, duckdb.Error):
            return False
        return True

    def by_verifier(self, spec):
        columns = [(name, parse_type(kind)) for name, kind in self.frame(spec).dtypes]
        evaluate(self.duckdb, "made", spec.sql, self.types, columns, prepared=self.prepared)
        rows = self.duckdb.execute("SELECT * FROM made").fetchall()
        return in_order(tuple(map(plain, row)) for row in rows)


def spark_type(kind):
    if kind.name == "array":
        return f"array<{spark_type(kind.fields[0][1])}>"
    return f"decimal({kind.precision},{kind.scale})" if kind.name == "decimal" else kind.name


def own_session(spark):
    """Return a session whose plans are for few rows and many columns."""
    made = spark.newSession()
    for name in ("spark.sql.session.timeZone", "spark.sql.ansi.enabled"):
        made.conf.set(name, str(spark.conf.get(name)))
    for name, value in QUICK.items():
        made.conf.set(name, value)
    return made
