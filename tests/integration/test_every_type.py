"""Every type of the map, with its edge values: PostgreSQL, topic, Spark, Delta, DuckDB agree."""

import pytest

from tests.support.capture_command import CaptureCommand
from tests.support.captured_project import CapturedProject, rebuild_view, write_settings

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

TABLE = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad');
CREATE TABLE everything (
    id bigint PRIMARY KEY, bo boolean, i2 smallint, i4 integer, i8 bigint,
    n numeric, nd numeric(12, 3), nw numeric(60, 5), f4 real, f8 double precision,
    t text, vc varchar(9), c char(4), by bytea, d date, ti time, tz timetz,
    ts timestamp, tstz timestamptz, iv interval, u uuid, j json, jb jsonb, m mood,
    ai integer[], at text[], an numeric(5, 2)[], atz timestamptz[], am mood[],
    net inet, pt point
)"""
ROWS = (
    "INSERT INTO everything (id) VALUES (1)",
    """INSERT INTO everything VALUES (2, true, -32768, -2147483648, -9223372036854775808,
    'NaN', -0.001, 123456789012345678901234567890.12345, 'NaN', '-Infinity', '', 'ü', 'a',
    '\\x00ff',
    'infinity', '24:00:00', '23:59:59.999999-08', '-infinity', 'infinity',
    '1 mon -3 days 04:05:06.7',
    '00000000-0000-0000-0000-0000000000ff', '{"a" : 1}', '{"a": [null, 1e400]}', 'glad',
    '{1,NULL,-3}', '{"", "a,b", "q\\"q", NULL, "NULL", "\\\\"}', '{1.50,NULL}',
    '{infinity, 2024-02-29 12:00:00.000001+00}', '{sad,glad}', '10.0.0.1/8', '(1,2)')""",
    """INSERT INTO everything VALUES (3, false, 32767, 2147483647, 9223372036854775807,
    'Infinity', 999999999.999, 0, 1.17549435e-38, 4.9406564584124654e-324,
    E'line\\nbreak\\ttab\\\\',
    'x', 'abcd', '', '0044-03-15 BC', '00:00', '00:00+14', '0001-01-01 00:00:00.000001 BC',
    '9999-12-31 23:59:59.999999+00', '0', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'null', '"x"',
    'sad', '{}', '{}', '{}', NULL, NULL, '::1', NULL)""",
    """INSERT INTO everything (id, f4, f8, n, nd, d, ts) VALUES (4, '-0', 0.1,
    1e-100, 0, '12345-06-07', '20000-01-01 00:00:00')""",
)


@pytest.fixture
def project(endpoints, dsn, prefix, tmp_path):
    write_settings(tmp_path, endpoints, dsn, prefix)
    return CapturedProject(tmp_path, dsn)


@pytest.fixture
def capture(project, dsn, kafka, registry, prefix):
    settings = (project.root / "changelog.toml").read_text()
    made = CaptureCommand(
        dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=project.root
    )
    (project.root / "changelog.toml").write_text(settings)
    return made


def test_every_type_comes_out_of_snapshot_and_stream_as_it_went_in(
    spark, project, capture, capsys, monkeypatch
):
    project.execute(TABLE)
    for row in ROWS:
        project.execute(row)
    code, _, said = capture.run("--until", "now")
    assert code == 0, said
    assert said.count("is carried as PostgreSQL's text") == 2  # inet and point, once each
    # The stream has to give the same values as the snapshot did.
    project.execute("UPDATE everything SET id = id + 10")
    for row in ROWS:
        project.execute(row)
    capture.catch_up()
    (verified,) = capture.command("verify", "--json")
    (table,) = verified["tables"]
    assert (table["rows"], table["mismatches"], table["verified"]) == (8, 0, True)
    project.view("copy.sql", "-- key: id\n-- sinks: delta, search, cache\nSELECT * FROM everything")
    done = rebuild_view(capsys, monkeypatch, project, "copy", "--json")
    assert done.code == 0, done.err
    (view,) = done.results
    assert (view["rows"], view["verified"], view["mismatches"]) == (8, True, 0)


def test_a_value_that_no_spark_type_holds_fails_loudly_and_names_its_place(
    spark, project, capture, capsys, monkeypatch
):
    project.execute("CREATE TABLE prices (id integer PRIMARY KEY, price numeric(8, 2))")
    project.execute("INSERT INTO prices VALUES (1, 1.25), (7, 'NaN')")
    capture.catch_up()
    # The log has it, exactly; only the state of Spark has no place for it.
    assert capture.rows("prices")[(7,)]["price"] == "NaN"
    project.view("prices_copy.sql", "-- key: id\n-- sinks: delta\nSELECT * FROM prices")
    done = rebuild_view(capsys, monkeypatch, project, "prices_copy")
    assert done.code == 1
    assert "NaN" in done.err
    assert "price" in done.err
    assert not (project.warehouse / "prices_copy" / "_delta_log").exists()
