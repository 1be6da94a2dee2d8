"""The digest of rows in DuckDB is that of the program in docs/certificate.md, for every type."""

from __future__ import annotations

import hashlib
import math
import re
from decimal import Decimal

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.row_digests import (
    KINDS,
    PAGE,
    TYPES,
    arrow_table,
    edge_rows,
    model_kind,
    program,
    rows_of,
)
from views.verify.compare.digest import rows_digest
from views.verify.values.types import duckdb_type, quoted

MODEL = program()
ALL = list(TYPES)
IN_DUCKDB = [name for name in ALL if name != "empty"]
"""DuckDB has no struct without fields."""


DATABASE = duckdb.connect()


def in_duckdb(rows, names, key=("id",)):
    columns = [(name, KINDS[name]) for name in names]
    definitions = ", ".join(f"{quoted(n)} {duckdb_type(kind)}" for n, kind in columns)
    DATABASE.execute(f"CREATE OR REPLACE TABLE rows ({definitions})")
    DATABASE.register("batch", arrow_table(rows, names))
    DATABASE.execute("INSERT INTO rows BY NAME FROM batch")
    return rows_digest(DATABASE, "rows", columns, key)


def by_the_page(rows, names, key=("id",)):
    kinds = [model_kind(KINDS[name]) for name in names]
    return MODEL["digest"](rows, kinds, [names.index(name) for name in key])


@pytest.mark.parametrize("name", IN_DUCKDB[1:])
@settings(max_examples=15)
@given(examples=st.data())
def test_a_column_has_the_digest_of_the_page(name, examples):
    names = ["id", name]
    rows = examples.draw(rows_of(names))
    assert in_duckdb(rows, names) == by_the_page(rows, names)


def test_edges_of_all_types_have_the_digest_of_the_page_under_any_key():
    rows = [row[:-1] for row in edge_rows()]
    for key in (("id",), ("text", "id"), ("money", "day", "id")):
        assert in_duckdb(rows, IN_DUCKDB, key) == by_the_page(rows, IN_DUCKDB, key)


def test_order_does_not_matter_and_equal_rows_do_not_cancel():
    names = ["id", "text"]
    rows = [(number, str(number % 3)) for number in range(40)]
    assert in_duckdb(rows, names) == in_duckdb(rows[::-1], names)
    (place,) = in_duckdb(rows[:1], names)
    once, twice = in_duckdb(rows[:1], names)[place], in_duckdb(rows[:1] * 2, names)[place]
    assert once[0], twice[0] == (1, 2)
    assert int(twice[1], 16) == 2 * int(once[1], 16) % 2**256 != 0


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("double", 0.0, -0.0),
        ("double", math.nan, None),
        ("text", "", None),
        ("text", "e\u0301", "\u00e9"),
        ("text", "a", "a "),
        ("texts", [], None),
        ("texts", [None], []),
        ("texts", ["a", "b"], ["ab"]),
        ("texts", ["a", "b"], ["b", "a"]),
        ("named", {"a": None}, {}),
        ("money", Decimal("0.01"), Decimal("0.10")),
    ],
)
def test_values_that_differ_have_different_digests(name, one, other):
    names = ["id", name]
    assert in_duckdb([(1, one)], names) != in_duckdb([(1, other)], names)


def test_a_sum_beyond_256_bits_begins_anew():
    names = ["id"]
    rows = [(number,) for number in range(2_000)]
    ranges = in_duckdb(rows, names)
    assert sum(count for count, _ in ranges.values()) == 2_000
    assert ranges == by_the_page(rows, names)
    assert {len(text) for _, text in ranges.values()} == {64}


def test_the_examples_of_the_page_are_what_its_program_gives():
    text = PAGE.read_text("utf-8")
    rows = [
        (1, "Zoë", Decimal("1.50"), -0.0),
        (2, "", None, math.nan),
        (3, None, Decimal(-20), 0.1),
    ]
    kinds = [("int",), ("string",), ("decimal",), ("double",)]
    listed = re.findall(r"^\| (\d) \|.*\| `([^`]+)` \| `([0-9a-f]{64})` \|$", text, re.MULTILINE)
    assert [int(number) for number, *_ in listed] == [1, 2, 3]
    for row, (_, written, digest) in zip(rows, listed, strict=True):
        encoded = b"".join(MODEL["encoded"](v, *k) for v, k in zip(row, kinds, strict=True))
        assert (encoded.decode(), hashlib.sha256(encoded).hexdigest()) == (written, digest)
    totals = re.findall(r"`([0-9a-f]{64})`; with the third row twice, `([0-9a-f]{64})`", text)
    assert totals == [(_total(rows, kinds), _total([*rows, rows[2]], kinds))]
    places = [next(iter(MODEL["digest"]([row], kinds, [0]))) for row in rows]
    assert "`{}`, `{}` and `{}`".format(*places) in text


def _total(rows, kinds):
    ranges = MODEL["digest"](rows, kinds, [0]).values()
    return f"{sum(int(digest, 16) for _, digest in ranges) % 2**256:064x}"
