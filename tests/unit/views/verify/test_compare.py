"""Equality of values, and the faults of rows in JSON form."""

from __future__ import annotations

import io
import json
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from changelog.contract.base.errors import RefutedError, ViewError
from views.verify.compare.compare import Comparison, Equality, are_equal, equal
from views.verify.compare.report import Mismatch, VerifyReport
from views.verify.served.documents import FAULT_COLUMN, ID_COLUMN, DocumentForm
from views.verify.values.jsonform import identifier, reader
from views.verify.values.types import parse_type

EXACT, ZEROS, NEAR = Equality.EXACT, Equality.ZEROS, Equality.NEAR


@pytest.mark.parametrize(
    ("left", "right", "kind", "how", "same"),
    [
        ("NULL", "NULL", "int", EXACT, True),
        ("NULL", "1", "int", NEAR, False),
        ("'nan'::DOUBLE", "'nan'::DOUBLE", "double", EXACT, True),
        ("'nan'::DOUBLE", "1.0", "double", NEAR, False),
        ("0.0::DOUBLE", "-0.0::DOUBLE", "double", EXACT, False),
        ("0.0::DOUBLE", "-0.0::DOUBLE", "double", NEAR, True),
        ("0.0::DOUBLE", "-0.0::DOUBLE", "double", ZEROS, True),
        ("[0.0::DOUBLE]", "[-0.0::DOUBLE]", "array<double>", ZEROS, True),
        ("1.0::DOUBLE", "1.0000000001::DOUBLE", "double", ZEROS, False),
        ("'nan'::DOUBLE", "-'nan'::DOUBLE", "double", ZEROS, True),
        ("1.0::DOUBLE", "1.0000000001::DOUBLE", "double", NEAR, True),
        ("1.0::DOUBLE", "1.0000000001::DOUBLE", "double", EXACT, False),
        ("1.0::DOUBLE", "1.00000001::DOUBLE", "double", NEAR, False),
        ("NULL::DOUBLE", "1.0", "double", NEAR, False),
        ("NULL::DOUBLE", "NULL::DOUBLE", "double", NEAR, True),
        ("'inf'::DOUBLE", "1e300", "double", NEAR, False),
        ("{'x': 1.0::DOUBLE}", "{'x': NULL::DOUBLE}", "struct<x:double>", NEAR, False),
        ("{'x': NULL::DOUBLE}", "NULL", "struct<x:double>", NEAR, False),
        ("[1.0::DOUBLE, NULL]", "[1.0::DOUBLE, NULL]", "array<double>", NEAR, True),
        ("[1.0::DOUBLE]", "[1.0::DOUBLE, NULL]", "array<double>", NEAR, False),
        ("[]::DOUBLE[]", "[]::DOUBLE[]", "array<double>", EXACT, True),
        ("[]::DOUBLE[]", "NULL::DOUBLE[]", "array<double>", EXACT, False),
    ],
)
def test_equality(left: str, right: str, kind: str, how: Equality, same: bool) -> None:
    condition = equal("l", "r", parse_type(kind), how)
    with duckdb.connect() as database:
        found = database.execute(f"SELECT {condition} FROM (SELECT {left} AS l, {right} AS r)")
        assert found.fetchall() == [(same,)]


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ("date", "1970-01-02", 1),
        ("date", "infinity", 2**31 - 1),
        ("date", "0001-12-31 BC", -719_163),
        ("date", "10000-01-01", 2_932_897),
        ("timestamp", "1969-12-31T23:59:59.999999Z", -1),
        ("timestamp_ntz", "-infinity", -(2**63) + 1),
        ("double", 1, 1.0),
        ("binary", "AP8=", b"\x00\xff"),
        ("array<int>", [1, None], [1, None]),
        ("bigint", 2**63 - 1, 2**63 - 1),
    ],
)
def test_a_value_is_read(kind: str, value: Any, read: Any) -> None:
    assert reader(parse_type(kind))(value) == read


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.0),
        ("int", True),
        ("int", 2**31),
        ("boolean", 1),
        ("string", 1),
        ("decimal(5,2)", "1.5"),
        ("decimal(5,2)", "1000.00"),
        ("decimal(5,2)", 1.25),
        ("date", "20130101"),
        ("date", "2013-02-30"),
        ("timestamp", "2013-01-01T00:00:00Z"),
        ("timestamp_ntz", "2013-01-01T00:00:00.000000Z"),
        ("binary", "%%%"),
        ("array<int>", {}),
        ("struct<a:int>", {"a": 1, "b": 2}),
        ("double", "nan"),
    ],
)
def test_a_malformed_value_is_a_fault(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        reader(parse_type(kind))(value)


def test_identifiers_are_the_keys_json() -> None:
    a, b = ("a", parse_type("string")), ("b", parse_type("int"))
    assert identifier({"a": "UA", "b": 1545}, [a]) == "UA"
    assert identifier({"a": "UA", "b": 1545}, [b]) == "1545"
    assert identifier({"a": "é", "b": 1545}, [a, b]) == '["é",1545]'
    odd = "\x0b\x1f\n\\u001f"
    assert identifier({"a": odd, "b": 1}, [a, b]) == '["\\u000B\\u001F\\n\\\\u001f",1]'
    assert identifier({"a": odd}, [a]) == odd
    c, d = ("c", parse_type("double")), ("d", parse_type("array<string>"))
    assert identifier({"d": ["x", None]}, [d]) == '["x",null]'
    assert identifier({"c": -0.0, "d": []}, [c, d]) == "[0.0,[]]"
    assert identifier({"c": "NaN", "d": ["é"]}, [c, d]) == '["NaN",["é"]]'


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        ("double", 1.5, "1.5"),
        ("double", -100.0, "-100.0"),
        ("double", 9_999_999.0, "9999999.0"),
        ("double", 1e7, "1.0E7"),
        ("double", 0.001, "0.001"),
        ("double", 0.00012, "1.2E-4"),
        ("double", 5e-324, "4.9E-324"),
        ("double", 2e-323, "2.0E-323"),
        ("double", 1.7976931348623157e308, "1.7976931348623157E308"),
        ("double", 123456.789, "123456.789"),
        ("float", 0.1, "0.1"),
        ("float", 1.1754943508222875e-38, "1.1754944E-38"),
        ("float", 1.401298464324817e-45, "1.4E-45"),
        ("float", 16777216.0, "1.6777216E7"),
        ("double", 0.0, "0.0"),
        ("double", -0.0, "0.0"),
    ],
)
def test_a_float_in_a_key_has_the_text_that_java_gives_it(kind, number, text) -> None:
    assert identifier({"f": number}, [("f", parse_type(kind))]) == text


def test_a_fault_stands_beside_its_row() -> None:
    columns = [("id", parse_type("int")), ("x", parse_type("date"))]
    documents = [
        ("1", json.dumps({"id": 1, "x": "2013-01-01"})),
        ("2", json.dumps({"id": 3, "x": None})),
        ("4", "{"),
    ]
    (batch,) = DocumentForm(columns, ["id"]).tables(documents)
    faults = batch.column(FAULT_COLUMN).to_pylist()
    assert faults[0] is None
    assert "its key says '3'" in faults[1]
    assert "malformed" in faults[2]


@pytest.mark.parametrize("text", ["interval", "map<int", "struct<a int>", "array<int,int>", ""])
def test_an_unknown_type_is_an_error(text: str) -> None:
    with pytest.raises(ViewError):
        parse_type(text)


def test_a_report_says_what_differs() -> None:
    difference = Mismatch({"id": "1"}, "different", "name", "[red]", None, "t:0:7")
    report = VerifyReport(
        view="v",
        verified=False,
        rows_expected=2,
        rows_served=2,
        mismatches=1,
        differences=(difference,),
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report.render())
    assert "refuted" in console.export_text()
    with pytest.raises(RefutedError, match=r"name is null, must be \[red\] at t:0:7"):
        report.raise_on_mismatch()


KINDS = [("id", parse_type("int")), ("x", parse_type("double"))]
SOME_ROWS = st.lists(
    st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, 0.0, -0.0, 1.0, float("nan")])),
    max_size=3,
)


def compared(
    expected: list[Any], served: list[Any], how: Equality, defect: str = ""
) -> tuple[bool, bool]:
    """Return whether rows are the same by one statement, and by all steps."""
    floats = {"id": Equality.EXACT, "x": how}
    with duckdb.connect() as database:
        for name, rows in (("expected", expected), ("rows", served)):
            database.execute(f"CREATE TABLE {name} (id INTEGER, x DOUBLE)")
            for row in rows:
                database.execute(f"INSERT INTO {name} VALUES (?, ?)", row)
        quick = are_equal(
            database, f"FROM expected {defect}", f"FROM rows {defect}", len(served),
            columns=KINDS, key=["id"], floats=floats,
        )  # fmt: skip
        database.execute(
            f"CREATE TABLE served AS SELECT *, NULL::VARCHAR AS {FAULT_COLUMN}, "
            f"NULL::VARCHAR AS {ID_COLUMN} FROM rows"
        )
        steps = Comparison(
            database, expected="expected", served="served", columns=KINDS, key=["id"], floats=floats
        )
        try:
            mismatches, count = steps.run()
        except ViewError:
            return quick, False
        return quick, mismatches == 0 and count == len(served)


@given(SOME_ROWS, SOME_ROWS, st.sampled_from(list(Equality)))
def test_one_statement_tells_of_any_rows_what_all_steps_tell(expected, served, how):
    quick, whole = compared(expected, served, how)
    assert quick == whole
    quick, whole = compared(expected, expected, how)
    assert quick == whole


def test_twin_a_statement_that_does_not_see_all_rows_is_found_by_the_steps():
    quick, whole = compared([(1, 0.0), (2, 0.0)], [(1, 0.0)], EXACT, defect="WHERE id = 1")
    assert quick
    assert not whole
