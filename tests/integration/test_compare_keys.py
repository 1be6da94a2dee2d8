"""`changelog verify --target`: keys whose types differ on the two sides are found, or refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import psycopg2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg2.extensions import make_dsn, parse_dsn

from changelog.compare.address import parse_target
from changelog.compare.command import open_target
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.contract.base.errors import ConfigurationError, SourceError
from tests.support.matrix import first

COPIES = {
    "same": "k",
    "as float": "k::float8",
    "as numeric": "k::numeric",
    "as text": "k::text",
    "as bigint": "k::int8",
    "padded": "rpad(k::text, 9)",
    "capitals": "upper(k::text)",
    "as timestamp": "k::timestamp",
}
VALUES = {
    "int": "1, 2, 77",
    "numeric(10,2)": "1, 2.5, 77.25",
    "numeric": "1, 'NaN', '-Infinity', 'Infinity', 1e40, -0.1",
    "oid": "1, 4294967295, 2147483648",
    "float8": "0.1, 1e22, '-0', 'NaN'",
    "real": "0.1, 3",
    "char(4)": "'a', 'bb', ''",
    "text": "'a', 'B', 'é \"x'",
    "uuid": "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    "bytea": r"'\xdead', '\x'",
    "bool": "true, false",
    "date": "'2024-02-29', '0044-03-15 BC'",
    "timestamptz": "'2024-02-29 01:02:03.000001+05', '0044-03-15 00:00+00 BC'",
    "interval": "'1 day 02:00', '27:00'",
    "int[]": "'{1,2}', '{}'",
}
FOUND = [
    *(("int", "as float"), ("numeric(10,2)", "as float"), ("char(4)", "padded")),
    *(("uuid", "capitals"), ("int", "as text"), ("date", "as timestamp"), ("bytea", "same")),
    *(("float8", "as numeric"), ("int", "as numeric"), ("uuid", "as text"), ("date", "as text")),
    *((kind, "same") for kind in VALUES if kind not in {"bytea", "numeric", "oid"}),
]
REFUSED = [
    *((kind, "as text") for kind in ("numeric(10,2)", "float8", "real", "bytea", "bool")),
    *(("timestamptz", "as text"), ("int[]", "as text")),
]


def sides(execute, kind, copy):
    rows = f"SELECT k::{kind} AS k, n FROM unnest(ARRAY[{VALUES[kind]}]::{kind}[]) "
    if kind == "int[]":
        listed = (f"({text}::int[], {n})" for n, text in enumerate(VALUES[kind].split(", "), 1))
        rows = f"SELECT k, n FROM (VALUES {', '.join(listed)}) AS v(k, n)"
    else:
        rows += "WITH ORDINALITY AS v(k, n)"
    execute(f"CREATE TABLE own (k {kind} PRIMARY KEY, n int); INSERT INTO own {rows}")
    if (kind, copy) == ("float8", "as numeric"):
        execute("DELETE FROM own WHERE k = 0")  # a numeric has no -0
    execute(f"CREATE TABLE other AS SELECT {COPIES[copy]} AS k, n FROM own")


def other(dsn):
    return f"postgres:{dsn} dbname={parse_dsn(dsn)['dbname']}/other"


def compared(dsn, target, **options):
    with (
        closing(PostgresSide(dsn, ComparedRelation(table="own"), of="source")) as source,
        closing(open_target(parse_target(target), "own", Path())) as other,
    ):
        return compare(source, other, CompareRequest(**{"settle_s": 0.0, **options}))


ODD = [("numeric", "same"), ("oid", "same"), ("oid", "as bigint")]


@pytest.mark.parametrize(("kind", "copy"), [*first(7, FOUND), *ODD])
def test_a_key_of_another_type_is_the_same_key(dsn, execute, kind, copy):
    sides(execute, kind, copy)
    target = other(dsn)
    report = compared(dsn, target)
    assert report.verified is True, report.lines()
    execute("UPDATE other SET n = 99 WHERE n = 2")
    (difference,) = compared(dsn, target).differences
    assert (difference.kind, [each.column for each in difference.columns]) == ("differs", ["n"])
    execute("DELETE FROM other")
    report = compared(dsn, target)
    assert {each.kind for each in report.differences} == {"missing"}
    assert report.mismatches == report.source_rows


@pytest.mark.parametrize("hidden", ["source", "target", "both"])
def test_a_row_that_is_not_found_by_its_key_is_not_taken_for_absent(
    dsn, execute, monkeypatch, hidden
):
    sides(execute, "int", "same")
    execute("UPDATE other SET n = 99 WHERE n = 2; DELETE FROM own WHERE n = 3")
    look, at = PostgresSide.look, {"source", "target"} if hidden == "both" else {hidden}

    def seen(side, keys):
        return [row for row in look(side, keys) if row.key != ("2",) or side.of not in at]

    monkeypatch.setattr(PostgresSide, "look", seen)
    with pytest.raises(SourceError, match=r"not found by their key, such as k='2'"):
        compared(dsn, other(dsn))


@pytest.mark.parametrize("comes_to", ["own", "other"])
def test_a_row_that_comes_between_two_looks_is_no_error(dsn, execute, monkeypatch, comes_to):
    sides(execute, "int", "same")
    execute(f"UPDATE own SET n = 99 WHERE n = 2; DELETE FROM {comes_to} WHERE n IN (2, 99)")
    rows, moments = PostgresSide.rows, iter(range(100))

    def late(side, buckets):
        if next(moments) == 2:  # behind the watch, before keys are looked for in their buckets
            execute("DELETE FROM own WHERE k = 2; DELETE FROM other WHERE k = 2")
            execute("INSERT INTO own VALUES (2, 5); INSERT INTO other VALUES (2, 5)")
        return rows(side, buckets)

    monkeypatch.setattr(PostgresSide, "rows", late)
    assert compared(dsn, other(dsn)).verified is True


@pytest.mark.parametrize("hidden", ["source", "target"])
def test_rows_that_a_policy_hides_are_not_taken_for_missing(dsn, execute, prefix, hidden):
    sides(execute, "int", "same")
    role, table = f"{prefix}_reader", "own" if hidden == "source" else "other"
    execute(f"CREATE ROLE {role} LOGIN; GRANT SELECT ON own, other TO {role}")
    execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    execute(f"CREATE POLICY few ON {table} TO {role} USING (n < 2)")
    reader = make_dsn(dsn, user=role)
    of = {"source": dsn, "target": dsn} | {hidden: reader}
    with pytest.raises(ConfigurationError, match="row-level security") as raised:
        compared(of["source"], other(of["target"]))
    assert f"hides rows of the {hidden}" in (raised.value.hint or "")


@pytest.mark.parametrize(("kind", "copy"), REFUSED)
def test_a_key_with_several_texts_is_refused(dsn, execute, kind, copy):
    sides(execute, kind, copy)
    with pytest.raises(ConfigurationError, match='key column "k" cannot be compared'):
        compared(dsn, other(dsn))


def test_a_name_with_quotes_is_found(dsn, execute, run_command):
    execute('CREATE TABLE "T ""q"". é" (id int PRIMARY KEY); CREATE TABLE other (id int)')
    words = ["verify", '"T ""q"". é"', "--source", dsn, "--target", other(dsn), "--json"]
    code, _, said = run_command([*words, "--settle", "0"])
    assert code == 0, said


def test_a_sample_without_a_row_proves_nothing(dsn, execute, run_command):
    execute("CREATE TABLE own (id int PRIMARY KEY); CREATE TABLE other (id int)")
    execute("INSERT INTO own VALUES (1)")
    words = ["verify", "own", "--source", dsn, "--target", other(dsn), "--json"]
    codes = set()
    for _ in range(40):
        code, _, said = run_command([*words, "--settle", "0", "--sample", "50%"])
        codes.add(code)
        assert code == 3 or "the sample has no row" in said
    assert codes == {3, 4}


def test_moments_of_nanoseconds_are_compared(dsn, execute, tmp_path):
    execute("CREATE TABLE own (k int PRIMARY KEY, at timestamptz)")
    execute("INSERT INTO own VALUES (1, '2024-02-29 01:02:03.000001+05'), (2, NULL), (3, now())")
    ((moment,),) = execute("SELECT (extract(epoch FROM at) * 1000000)::int8 FROM own WHERE k = 3")
    first = 1709150523000001000
    kind = pa.timestamp("ns", "UTC")
    path = tmp_path / "own.parquet"
    for further, verified in ((0, True), (1, False), (1000, False)):
        values = pa.array([first + further, None, moment * 1000], kind)
        pq.write_table(pa.table({"k": pa.array([1, 2, 3], pa.int32()), "at": values}), path)
        report = compared(dsn, f"parquet:{path}")
        assert (report.verified, dict(report.not_compared)) == (verified, {}), report.lines()


def test_a_view_in_the_copy_reads_no_other_files(dsn, execute, tmp_path):
    execute("CREATE TABLE own (k int PRIMARY KEY)")
    (tmp_path / "copy").mkdir()
    pq.write_table(pa.table({"k": pa.array([], pa.int32())}), tmp_path / "elsewhere.parquet")
    file = tmp_path / "copy" / "shop.duckdb"
    with duckdb.connect(str(file)) as database:
        database.execute(f"CREATE VIEW own AS FROM read_parquet('{tmp_path}/elsewhere.parquet')")
    with pytest.raises(ConfigurationError, match="disabled by configuration"):
        compared(dsn, f"duckdb:{file}/own")


def test_a_key_that_the_copys_encoding_lacks_is_missing_there(dsn, execute, prefix):
    execute(f"CREATE DATABASE {prefix}_latin ENCODING LATIN1 TEMPLATE template0 LOCALE 'C'")
    copy = f"{make_dsn(dsn)} dbname={prefix}_latin"
    table = "CREATE TABLE own (k text PRIMARY KEY); INSERT INTO own VALUES ('é'), ('a')"
    execute(table)
    with closing(psycopg2.connect(copy)) as connection, connection:
        connection.cursor().execute(f"{table}; INSERT INTO own VALUES ('only here')")
    execute("INSERT INTO own VALUES ('€'), ('ж')")
    report = compared(dsn, f"postgres:{copy}/own")
    assert {key for (key,) in report.refuted} == {"€", "ж", "only here"}


def test_a_text_that_is_none_is_told(dsn, execute, prefix, tmp_path):
    execute(f"CREATE DATABASE {prefix}_ascii ENCODING SQL_ASCII TEMPLATE template0 LOCALE 'C'")
    source = f"{make_dsn(dsn)} dbname={prefix}_ascii"
    with closing(psycopg2.connect(source)) as connection, connection:
        connection.cursor().execute(
            r"CREATE TABLE own (k int PRIMARY KEY, t text); INSERT INTO own VALUES (1, E'\xe9')"
        )
    path = tmp_path / "own.parquet"
    pq.write_table(pa.table({"k": pa.array([1], pa.int32()), "t": ["é"]}), path)
    with pytest.raises(SourceError, match="invalid byte sequence") as told:
        compared(source, f"parquet:{path}")
    assert "--columns" in told.value.hint
