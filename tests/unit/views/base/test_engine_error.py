"""Errors of Spark, said in the words of who wrote the view."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from views.base.engine_error import engine_error, raised

SQL = """WITH s AS (SELECT id, a / b AS part FROM t)
SELECT id, coalesce(part, 0) AS share, cast(w AS int) + 1 AS number FROM s JOIN u USING (id)"""


JAVA = """An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed.
\tat org.apache.spark.sql.X.y(X.scala:1)
"""


class Context:
    """The part of a query that failed."""

    def __init__(self, fragment: str) -> None:
        self._fragment = fragment

    def fragment(self) -> str:
        return self._fragment


def spark(condition: str, text: str = "", fragment: str = "", **parameters: str) -> Exception:
    contexts = cast("Any", [Context(fragment)] if fragment else [])
    return PySparkException(text or "Some text.", condition, parameters, contexts)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (spark("DIVIDE_BY_ZERO", fragment="a / b"), 'column "part" (a / b): division by zero'),
        (
            spark(
                "CAST_INVALID_INPUT",
                fragment="cast(w AS\n int)",
                expression="'x'",
                targetType='"INT"',
            ),
            "column \"number\" (cast(w AS int)): 'x' is no value of type INT",
        ),
        (
            spark("INVALID_FORMAT.ESC_AT_THE_END", format="'a\\'"),
            "the pattern 'a\\' of LIKE has a backslash that escapes nothing",
        ),
        (
            spark("INVALID_EXTRACT_BASE_FIELD_TYPE", base='"cmp"', other='"STRING"'),
            "cmp has no fields: it is STRING",
        ),
        (spark("DIVIDE_BY_ZERO", fragment="gone / 0"), "gone / 0: division by zero"),
        (spark("DIVIDE_BY_ZERO"), "division by zero"),
        (
            spark("UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName="`x`", proposal="`a`, `b`"),
            "there is no column x",
        ),
        (
            spark(
                "NOT_KNOWN_HERE",
                "[NOT_KNOWN_HERE] Long story. SQLSTATE: 42601; line 1 pos 2\n'Plan",
            ),
            "Long story.",
        ),
        (
            spark(
                "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION", pattern="'uu'"
            ),
            "the pattern 'uu' of a date or time has letters that Spark refuses",
        ),
    ],
)
def test_an_error_names_the_column_and_the_cause(error: Exception, text: str) -> None:
    said = engine_error(error, SQL)
    assert said.text == text
    assert "SQLSTATE" not in said.text


def test_the_inmost_cause_that_is_known_is_told() -> None:
    text = """An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows.
\tat org.apache.spark.sql.X.y(X.scala:1)
Caused by: org.apache.spark.SparkException: [SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row.
\tat org.apache.spark.sql.X.z(X.scala:2)
"""
    assert "several rows where one value" in engine_error(RuntimeError(text), None).text


BROADCAST = """[_LEGACY_ERROR_TEMP_2250] Not enough memory to build and broadcast the table to all
worker nodes. As a workaround, you can either disable broadcast by setting
spark.sql.autoBroadcastJoinThreshold to -1 or increase the spark driver memory"""


@pytest.mark.parametrize(
    "text", ["java.lang.OutOfMemoryError: Java heap space", "GC overhead", BROADCAST]
)
def test_memory_is_told_with_the_setting(text: str) -> None:
    said = engine_error(RuntimeError(text), None)
    assert said.text == "Spark ran out of memory"
    assert "spark.driver.memory" in said.hint


def test_java_that_has_ended_is_told_although_its_error_has_no_text() -> None:
    class GoneError(RuntimeError):
        def __str__(self) -> str:
            raise ConnectionRefusedError("py4j asks Java for the text")

    assert engine_error(GoneError(), None).text == "Spark's Java process has ended"


@pytest.mark.parametrize("text", ["long overflow", "integer overflow"])
def test_infinite_dates_are_told_with_the_setting(text: str) -> None:
    said = engine_error(
        RuntimeError(f"{JAVA}Caused by: java.lang.ArithmeticException: {text}"), SQL
    )
    assert said.text == f"a date, timestamp or interval is infinite or out of range ({text})"
    assert "[rebuild.values]" in said.hint


@pytest.mark.parametrize(
    ("places", "where"),
    [
        (["coalesce(part, 0)"], 'column "share" (coalesce(part, 0)): a date'),
        (["d = ts"], "d = ts: a date"),
        (["d = ts", "year(d)"], "d = ts or year(d): a date"),
        (list("abcde"), "a or b or c or 2 more: a date"),
        (["x" * 200, "y"], f"{'x' * 79}… or y: a date"),
    ],
)
def test_of_an_infinite_date_the_places_are_told(places: list[str], where: str) -> None:
    error = RuntimeError(f"{JAVA}Caused by: java.lang.ArithmeticException: long overflow")
    assert engine_error(error, SQL, places).text.startswith(where)


@pytest.mark.parametrize(
    ("query", "where"),
    [
        (
            "SELECT id, (SELECT y FROM r WHERE r.k = l.k) AS y FROM l",
            'column "y" (select y from r where r.k = l.k): ',
        ),
        (
            "SELECT id FROM l WHERE x > (SELECT y FROM r) AND k IN (SELECT k FROM r)",
            "select y from r: ",
        ),
        (
            "SELECT id FROM l WHERE x > (SELECT y FROM r) AND k < (SELECT max(k) FROM r)",
            "select y from r: ",
        ),
        (
            "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r) AND (SELECT y FROM r) > 1",
            "select y from r: ",
        ),
        (
            "SELECT (SELECT max(y) FROM r GROUP BY k) AS m FROM l WHERE id > (SELECT y FROM r)",
            "select max(y) from r group by k or select y from r: ",
        ),
        (
            "SELECT id FROM (SELECT id FROM l) q WHERE id > (SELECT sum(y) OVER () FROM r)",
            "select sum(y) over () from r: ",
        ),
    ],
)
def test_a_query_in_brackets_with_several_rows_is_told(query: str, where: str) -> None:
    text = engine_error(spark("SCALAR_SUBQUERY_TOO_MANY_ROWS"), query).text
    assert text.startswith(f"{where}a query in brackets gives several rows")


def test_an_expression_of_a_condition_is_told_without_a_column() -> None:
    found = engine_error(spark("ARITHMETIC_OVERFLOW"), "SELECT id FROM t WHERE abs(a) > 1")
    assert found.text.startswith("abs(a): a number is out of the range")


def test_an_overflow_without_a_place_may_be_of_a_date() -> None:
    assert "may be infinite" in engine_error(spark("ARITHMETIC_OVERFLOW"), SQL).hint
    placed = engine_error(spark("ARITHMETIC_OVERFLOW", fragment="a / b"), SQL)
    assert "infinite" not in placed.hint


PLACELESS = """SELECT id, cast(d AS int) AS whole, -a AS minus, make_date(y, 1, 1) AS day,
dt + INTERVAL '1' month AS later FROM t"""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            spark("CAST_OVERFLOW", value="NaN", sourceType='"DOUBLE"', targetType='"INT"'),
            'column "whole" (cast(d as int)): NaN is out of the range of INT',
        ),
        (
            spark("DATETIME_FIELD_OUT_OF_BOUNDS.WITH_SUGGESTION", rangeMessage="month 13"),
            'column "day" (make_date(y, 1, 1)): a part of a date or time is out of range: month 13',
        ),
        (
            spark("ARITHMETIC_OVERFLOW"),
            'column "minus" or "later": a number is out of the range of its type',
        ),
        (
            spark("CAST_OVERFLOW", value="300", sourceType='"INT"', targetType='"TINYINT"'),
            "300 is out of the range of TINYINT",
        ),
    ],
)
def test_where_spark_tells_no_place_the_columns_are_named_that_it_can_be(
    error: Exception, text: str
) -> None:
    assert engine_error(error, PLACELESS).text == text
    assert not engine_error(error, None).text.startswith("column")


@pytest.mark.parametrize(
    ("kind", "tried"),
    [("INT", True), ("DATE", False), ("TIMESTAMP", False), ("BOOLEAN", False), ("FLOAT", False)],
)
def test_try_cast_is_named_for_the_types_that_it_is_proved_of(kind: str, *, tried: bool) -> None:
    error = spark("CAST_INVALID_INPUT", expression="'x'", targetType=f'"{kind}"')
    assert ("TRY_CAST" in engine_error(error, SQL).hint) is tried


def test_a_literal_that_is_no_date_is_told_as_one() -> None:
    error = spark("INVALID_TYPED_LITERAL", valueType='"DATE"', value="'2023-02-30'")
    assert engine_error(error, SQL).text == "'2023-02-30' is no DATE"


def test_of_a_function_in_python_its_own_error_is_told() -> None:
    text = """[UDF] An exception was thrown:
Traceback (most recent call last):
  File "/x/views/v.py", line 3, in double
    return 1 / 0
ZeroDivisionError: division by zero
\tat org.apache.spark.api.python.X(X.scala:1)"""
    assert engine_error(spark("SOME_UDF", text), None).text == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("by_parameter", [True, False])
def test_a_check_of_ours_names_its_column_and_a_remedy(by_parameter):
    sql = "SELECT id, quotient(`a`, b, 2, 0, 24) AS part FROM t"
    told = (
        "view ‖ quotient(`a`, b, 2, 0, 24) ‖ it has too many digits ‖ round it, as in round(x, 4)"
    )
    error = (
        spark("USER_RAISED_EXCEPTION", errorMessage=told)
        if by_parameter
        else RuntimeError(
            f"Job aborted: [USER_RAISED_EXCEPTION] {told} SQLSTATE: P0001\n\tat x.Y(Z)"
        )
    )
    found = engine_error(error, sql)
    assert found.text == 'column "part" (quotient(a, b, 2, 0, 24)): it has too many digits'
    assert found.hint == "round it, as in round(x, 4)"
    assert raised("a", "b's", "c") == r"raise_error('view ‖ a ‖ b\'s ‖ c')"
