"""Each function that the verifier allows, computed by Spark and by DuckDB over the same rows."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from changelog.contract.rows.relation import TableName
from views.project.own_calls import with_own_calls
from views.verify.sql.evaluate import evaluate, ordered
from views.verify.sql.functions import EXAMPLE_COLUMNS, GROUPS, Provable
from views.verify.values.names import reading_name
from views.verify.values.types import arrow_type, duckdb_type, parse_type, quoted

TABLE = TableName("public", "t")
COLUMNS = {"n": "int", **EXAMPLE_COLUMNS}
TYPES = {TABLE: {name: parse_type(kind) for name, kind in COLUMNS.items()}}
AGGREGATES = list(GROUPS["Aggregates"])
OTHERS = [each for name, group in GROUPS.items() if name != "Aggregates" for each in group]
moment = datetime.fromisoformat
TS, DT = moment("2024-02-29T13:05:07"), date(2024, 2, 29)
ROWS: list[tuple[Any, ...]] = [
    (1, 1, Decimal("1.25"), 2.675, "abc", '{"k": "v", "o": {"p": 1}}', TS, DT, True, [3, 1]),
    (
        2,
        -7,
        Decimal("-2.55"),
        -1.5,
        " Ab,b ",
        '{"k": 7}',
        moment("1969-12-31T23:00:00"),
        DT,
        False,
        [],
    ),
    (
        3,
        0,
        Decimal(0),
        0.0,
        "",
        '{"k": null}',
        moment("2000-01-01T00:00:00"),
        date(1999, 12, 31),
        None,
        [5],
    ),
    (4, 2, Decimal("99999999.99"), 1e3, "12", "no json", TS, date(1900, 3, 1), True, [0, 0]),
    (5, None, None, None, None, None, None, None, None, [7]),
    (6, 3, Decimal("0.05"), 7.25, "bbb", '{"k": true}', TS, DT, False, [2]),
]


@pytest.fixture(scope="module")
def engines(spark):
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in TYPES[TABLE].items()])
    table = pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in ROWS], schema)
    frame = spark.createDataFrame(
        ROWS, ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    )
    frame.createOrReplaceTempView("t")
    with duckdb.connect() as database:
        listed = ", ".join(f"{quoted(n)} {duckdb_type(k)}" for n, k in TYPES[TABLE].items())
        database.execute(f"CREATE TABLE {reading_name(TABLE)} ({listed})")
        database.register("given", table)
        database.execute(f"INSERT INTO {reading_name(TABLE)} SELECT * FROM given")
        yield spark, database


def by_both(engines, chosen: list[Provable], key: str) -> dict[str, tuple[list, list]]:
    """Compute examples; for each, its values in Spark and in DuckDB."""
    spark, database = engines
    items = [f"{each.example} AS x{number}" for number, each in enumerate(chosen)]
    sql = f"SELECT {key}, {', '.join(items)} FROM t"
    frame = spark.sql(with_own_calls(sql))
    kinds = [(name, parse_type(kind)) for name, kind in frame.dtypes]
    found = evaluate(database, "out", sql, TYPES, kinds)
    rows = sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda r: r["k"])
    arrow = pa.Table.from_pylist(
        [plain(row) for row in rows], pa.schema([(n, arrow_type(kind)) for n, kind in kinds])
    )
    database.register("by_spark", arrow)
    same = {}
    for number, each in enumerate(chosen):
        name = f"x{number}"
        kind = dict(kinds)[name]
        theirs = ordered(quoted(name), name, kind, found.bags)
        same[each.example] = (
            [
                row[0]
                for row in database.execute(f"SELECT {theirs} FROM by_spark ORDER BY k").fetchall()
            ],
            [row[0] for row in database.execute(f"SELECT {name} FROM out ORDER BY k").fetchall()],
        )
    return same


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.replace(tzinfo=None) if isinstance(value, datetime) else value
        for name, value in row.items()
    }


def agree(one: object, two: object) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-9) or (math.isnan(one) and math.isnan(two))
    return one == two


def test_each_example_means_the_same_in_both_engines(engines) -> None:
    same = by_both(engines, OTHERS, "n AS k")
    same |= by_both(engines, AGGREGATES, "1 AS k")
    different = {
        example: (spark, duck)
        for example, (spark, duck) in same.items()
        if not all(map(agree, spark, duck)) or len(spark) != len(duck)
    }
    assert different == {}
    assert len(same) == sum(map(len, GROUPS.values()))


def test_twin_a_function_that_differs_is_found(engines) -> None:
    """DuckDB's own `reverse` goes by letters with their marks, Spark's by code points."""
    spark, database = engines
    word = "e\u0301a"
    (theirs,) = spark.sql(f"SELECT reverse('{word}')").first()
    ((ours,),) = database.execute(f"SELECT reverse('{word}')").fetchall()
    assert not agree(theirs, ours)
