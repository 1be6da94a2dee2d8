"""`changelog verify --target`: copies of each kind, equal and with planted defects."""

from __future__ import annotations

import json
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any

import duckdb
import psycopg2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from changelog.compare import duckdb_side
from changelog.compare.address import parse_target
from changelog.compare.command import open_target
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.contract.base.errors import ConfigurationError, SinkError
from tests.support.copies import COLUMNS, KINDS, Source, every_row
from tests.support.planted import planted_defects

ROWS = every_row()


@pytest.fixture
def source(dsn):
    made = Source(dsn)
    made.fill(ROWS)
    return made


@pytest.fixture(params=[*KINDS])
def copy(request, source, tmp_path):
    made = KINDS[request.param](source.dsn, tmp_path)
    made.fill(ROWS)
    return made


def compared(source, copy, **options):
    relation = ComparedRelation(table=source.name)
    with (
        closing(PostgresSide(source.dsn, relation, of="source")) as own,
        closing(open_target(parse_target(copy.target), source.name, Path())) as other,
    ):
        return compare(own, other, CompareRequest(**{"settle_s": 0.0, **options}))


class Texts:
    """A copy that notes the canonical texts of both sides."""

    def __init__(self, side, texts):
        self._side, self._texts = side, texts

    def __getattr__(self, name):
        return getattr(self._side, name)

    def digests(self):
        digests = self._side.digests()
        keys = [key for key, _ in self._side.rows([*digests])]
        self._texts.append({row.key: row.texts for row in self._side.look(keys)})
        return digests


def test_both_sides_write_the_same_text_of_every_value(source, copy):
    texts: list[dict] = []
    relation = ComparedRelation(table=source.name)
    with (
        closing(PostgresSide(source.dsn, relation, of="source")) as own,
        closing(open_target(parse_target(copy.target), source.name, Path())) as other,
    ):
        noting: Any = Texts(own, texts)
        compare(noting, Texts(other, texts), CompareRequest(settle_s=0.0))
    one, two = texts
    assert {*one} == {*two}
    differing = {
        (column, mine, theirs)
        for key in one
        for column, mine, theirs in zip([*COLUMNS][1:], one[key], two[key], strict=True)
        if mine != theirs
    }
    assert differing == set()


def test_a_copy_of_every_type_is_equal_by_digests_alone(source, copy):
    report = compared(source, copy)
    assert report.verified is True, report.lines()
    assert report.compared == tuple(COLUMNS)
    assert (report.source_rows, report.target_rows) == (len(ROWS), len(ROWS))
    assert report.looks == 0, "no row had to be looked at: both write the same texts"


def test_planted_defects_are_all_found_and_nothing_else(source, copy):
    planted = planted_defects()
    copy.fill(planted.rows)
    report = compared(source, copy, most_shown=100)
    seen = {
        int(each.key["id"] or 0): (each.kind, {values.column for values in each.columns})
        for each in report.differences
    }
    assert seen == planted.expected
    assert report.mismatches == len(planted.expected)


def test_equal_values_in_other_texts_are_equal(source, copy):
    """PostgreSQL ignores the scale of a numeric, and the order and blanks of JSON."""
    rows = deepcopy(ROWS)
    for row in rows:
        if row["big"] == "0.10":
            row["big"] = "0.1"
        if row["j"] == '{"a": 1, "bb": [1.50, null, "é"]}':
            row["j"] = '{"bb":[1.5,null,"\\u00e9"],"a":1.0}'
    copy.fill(rows)
    report = compared(source, copy)
    assert report.verified is True, report.lines()


def test_many_differences_are_counted_and_some_are_shown(source, copy):
    rows = deepcopy(ROWS)
    for row in rows[:40]:
        row["t"] = "other"
    copy.fill(rows)
    report = compared(source, copy, most_shown=3)
    assert (report.mismatches, len(report.differences)) == (40, 3)
    assert "  and 37 more" in report.lines()


def test_a_sample_compares_some_buckets_alone(source, copy):
    report = compared(source, copy, sample=0.5)
    assert report.verified is True
    assert 0 < report.source_rows < len(ROWS)
    assert report.source_rows == report.target_rows


def test_columns_that_cannot_be_compared_are_named(source, dsn, tmp_path):
    copy = KINDS["duckdb"](dsn, tmp_path)
    copy.fill(ROWS)
    with closing(duckdb.connect(str(tmp_path / "copy.duckdb"))) as database:
        database.execute("ALTER TABLE copy DROP ts")
        database.execute("ALTER TABLE copy ALTER b TYPE INTERVAL USING NULL")
    report = compared(source, copy)
    assert report.verified is True, report.lines()
    assert dict(report.not_compared) == {
        "b": "boolean at the source, INTERVAL in the target",
        "ts": 'the target has no "ts"',
    }
    assert "ts" not in report.compared


def compared_with_parquet(source, folder, columns, rows, query, types="*"):
    """Compare a query with a file that has these rows, of whose columns DuckDB gives the types."""
    file = folder / "copy.parquet"
    with closing(duckdb.connect()) as database:
        values = f"(VALUES {rows}) AS copied({columns})"
        database.execute(f"COPY (SELECT {types} FROM {values}) TO '{file}' (FORMAT parquet)")
    relation = ComparedRelation(query=query)
    with (
        closing(PostgresSide(source.dsn, relation, of="source")) as own,
        closing(open_target(parse_target(f"parquet:{file}"), source.name, Path())) as other,
    ):
        return compare(own, other, CompareRequest(settle_s=0.0, key=["id"]))


def differing_ids(report):
    return {int(difference.key["id"]) for difference in report.differences}


@pytest.mark.parametrize("float_type", ["DOUBLE", "FLOAT"])
def test_a_numeric_that_no_float_holds_differs_from_each(source, tmp_path, float_type):
    numbers = ["1e400", "-1e400", "1e-400", "1.5", "0", "NaN", "Infinity", "1e38"]
    copied = ["inf", "-inf", "0", "1.5", "0", "nan", "inf", "1e38"]
    rows = ", ".join(f"({n}, {text!r}::{float_type})" for n, text in enumerate(copied))
    values = ", ".join(f"({n}::bigint, numeric {text!r})" for n, text in enumerate(numbers))
    query = f"SELECT * FROM (VALUES {values}) AS v(id, x)"
    report = compared_with_parquet(source, tmp_path, "id, x", rows, query)
    assert differing_ids(report) == {0, 1, 2}


@pytest.mark.parametrize("by", ["hashes", "texts"])
def test_decimals_without_a_digit_before_the_point(source, tmp_path, monkeypatch, by):
    """DuckDB writes .5000 and nothing before the point where all digits are after it."""
    if by == "texts":
        monkeypatch.setattr(duckdb_side.DuckdbSide, "sent_probe", lambda self: None)
    query = """
        SELECT id, x, x::text AS t, ARRAY[x] AS l
        FROM (VALUES (-0.1, -0.05), (0, 0), (0.5, 0.2500)) AS v(id, x)
    """
    copied = "(-0.1, -0.05, -0.05, [-0.05]), (0, 0, 0, [0]), (0.5, 0.25, 0.25, [0.25])"
    decimals = "id::DECIMAL(4,4) AS id, x::DECIMAL(38,38) AS x, t::DECIMAL(9,9) AS t"
    columns = f"{decimals}, l::DECIMAL(4,4)[] AS l"
    report = compared_with_parquet(source, tmp_path, "id, x, t, l", copied, query, columns)
    assert (report.mismatches, report.target_rows) == (0, 3), report.lines()


def test_a_text_is_not_compared_with_bytes(source, tmp_path):
    """The text 61 is not the byte a, whose hex it is."""
    query = "SELECT 1::bigint AS id, '61'::text AS x, ARRAY['61'] AS l"
    copied = "(1, 'a'::BLOB, ['a'::BLOB])"
    report = compared_with_parquet(source, tmp_path, "id, x, l", copied, query)
    assert {*report.not_compared} == {"x", "l"}


def test_a_date_beyond_all_moments_differs_from_each(source, tmp_path):
    days = "('5874897-12-31'), ('infinity'), ('294276-12-31'), ('2024-02-29')"
    query = f"SELECT row_number() OVER () AS id, text::date AS day FROM (VALUES {days}) AS v(text)"
    copied = "(1, TIMESTAMP '2024-01-01'), (2, 'infinity'), (3, '2024-01-01'), (4, '2024-02-29')"
    report = compared_with_parquet(source, tmp_path, "id, day", copied, query)
    assert differing_ids(report) == {1, 3}


def test_any_name_can_be_a_column_of_the_key(source, tmp_path, run_command):
    with closing(psycopg2.connect(source.dsn)) as connection, connection:
        connection.cursor().execute(
            """CREATE TABLE odd ("*" int, "a,b" int, "c=""d" int, PRIMARY KEY ("*", "a,b"));
               INSERT INTO odd VALUES (1, 2, 3);
               CREATE TABLE odd_copy AS SELECT "*", "a,b", "c=""d" + 1 AS other FROM odd"""
        )
    words = ["verify", "odd", "--source", source.dsn, "--settle", "0", "--json"]
    server = KINDS["postgres"](source.dsn, tmp_path).target.rpartition("/")[0]
    words += ["--target", f"{server}/odd_copy"]
    assert run_command([*words, "--columns", '"a,b"'])[0] == 0
    code, _, said = run_command([*words, "--key", '*,"a,b"', "--columns", '*,"c=""d"=other'])
    assert code == 3
    assert "differs from its source in 1 keys" in said


def test_a_text_is_compared_with_a_float_by_its_value(source, tmp_path):
    rows = "(1, 1.5::DOUBLE), (2, 1e20), (3, 0.1), (4, 2)"
    query = "SELECT * FROM (VALUES (1, '1.50'), (2, '1e+20'), (3, '0.10000000000000001'), (4, 'x'))"
    report = compared_with_parquet(source, tmp_path, "id, x", rows, query + " AS v(id, x)")
    assert differing_ids(report) == {4}


def test_a_column_of_nulls_alone_is_compared(source, tmp_path):
    file = tmp_path / "copy.parquet"
    pq.write_table(pa.table({"id": [1, 2], "x": pa.nulls(2), "y": pa.nulls(2)}), file)
    relation = ComparedRelation(
        query="SELECT id, CASE WHEN id = 2 THEN 'lost' END AS x, null::int[] AS y"
        " FROM generate_series(1::bigint, 2) AS id"
    )
    with (
        closing(PostgresSide(source.dsn, relation, of="source")) as own,
        closing(open_target(parse_target(f"parquet:{file}"), source.name, Path())) as other,
    ):
        report = compare(own, other, CompareRequest(settle_s=0.0, key=["id"]))
    assert report.compared == ("id", "x", "y")
    assert differing_ids(report) == {2}


@pytest.mark.parametrize("names", [["id", "A", "a"], ["id", "A", "a", "a_1"]])
def test_columns_that_differ_only_in_case_are_refused(source, tmp_path, names):
    file = tmp_path / "copy.parquet"
    pq.write_table(pa.table([[1]] * len(names), names), file)
    with pytest.raises(ConfigurationError, match="differ only in case"):
        open_target(parse_target(f"parquet:{file}"), source.name, Path())


def test_names_that_only_look_renamed_are_columns(source, tmp_path):
    rows = "(1::BIGINT, 2::BIGINT, 3::BIGINT)"
    query = "SELECT 1::bigint AS id, 2::bigint AS a, 3::bigint AS a_1"
    report = compared_with_parquet(source, tmp_path, "id, a, a_1", rows, query)
    assert (report.verified, report.compared) == (True, ("id", "a", "a_1"))


def test_lists_are_compared_with_json(source, tmp_path):
    rows = "(1::BIGINT, [1, 2], [[1], []]), (2, [], [[3]])"
    query = """SELECT * FROM (VALUES (1::bigint, jsonb '[1, 2]', jsonb '[[1], []]'),
                                     (2, '[]', '[[4]]')) AS v(id, x, y)"""
    report = compared_with_parquet(source, tmp_path, "id, x, y", rows, query)
    assert report.compared == ("id", "x", "y")
    assert differing_ids(report) == {2}


def test_an_array_of_a_copy_is_compared_with_json(source):
    with closing(psycopg2.connect(source.dsn)) as connection, connection:
        connection.cursor().execute(
            "CREATE TABLE lists AS SELECT 1::bigint AS id, ARRAY[1, 2] AS x UNION SELECT 2, '{3}'"
        )
    query = "SELECT * FROM (VALUES (1::bigint, jsonb '[1, 2]'), (2, '[4]')) AS v(id, x)"
    with (
        closing(PostgresSide(source.dsn, ComparedRelation(query=query), of="source")) as own,
        closing(PostgresSide(source.dsn, ComparedRelation(table="lists"), of="target")) as other,
    ):
        report = compare(own, other, CompareRequest(settle_s=0.0, key=["id"]))
    assert differing_ids(report) == {2}


def test_the_command_says_what_it_has_found(source, copy, run_command):
    words = ["verify", "every", "--source", source.dsn, "--target", copy.target, "--json"]
    code, result, _ = run_command(words)
    assert (code, result["verified"], result["rows_source"]) == (0, True, len(ROWS))
    copy.fill(ROWS[1:])
    code, _, said = run_command([*words, "--settle", "0"])
    assert code == 3
    assert "differs from its source in 1 keys" in said


def test_the_report_shows_both_values(source, copy, run_command, capsys):
    rows = deepcopy(ROWS)
    rows[3]["t"] = "e\u0301"
    copy.fill(rows)
    lines = "\n".join(compared(source, copy).lines())
    assert "t: 'é' (e9) at the source, 'e\u0301' (301) in the target" in lines
    assert json.dumps(compared(source, copy).to_json())


LONG = """
CREATE TABLE long (id int PRIMARY KEY, t text);
INSERT INTO long SELECT n, repeat(md5(n::text), 2000) FROM generate_series(1, 2100) AS n
"""


def long_values(dsn, execute, folder):
    """Compare a table whose values are longer than DuckDB's memory takes at once."""
    execute(LONG)
    with closing(duckdb.connect()) as database:
        database.execute(
            "COPY (SELECT n::INTEGER AS id, repeat(md5(n::VARCHAR), 2000) AS t"
            f" FROM range(1, 2101) AS r(n)) TO '{folder}/long.parquet' (FORMAT parquet)"
        )
    target = parse_target(f"parquet:{folder}/long.parquet")
    with (
        closing(PostgresSide(dsn, ComparedRelation(table="long"), of="source")) as own,
        closing(open_target(target, "long", Path())) as other,
    ):
        return compare(own, other, CompareRequest(settle_s=0.0))


def test_long_values_get_more_memory(dsn, execute, tmp_path):
    report = long_values(dsn, execute, tmp_path)
    assert (report.verified, report.looks, report.target_rows) == (True, 0, 2100)


def test_values_that_no_memory_takes_are_told(dsn, execute, tmp_path, monkeypatch):
    monkeypatch.setattr(duckdb_side, "machine_mib", lambda: 400.0)
    with pytest.raises(SinkError, match="cannot be read in 96 MiB of memory: 2,048 rows"):
        long_values(dsn, execute, tmp_path)
