"""Every type, with its edge values: PostgreSQL, topic, Spark, Delta, DuckDB agree.

One capture takes all tables: the snapshot through the bulk path, a short stream row by row, a
long transaction through the bulk path again.
"""

import re
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from changelog.contract.base.errors import LogError
from replay import ChangelogSource, Log
from tests.support.capture_command import CaptureCommand
from tests.support.captured_project import CapturedProject, rebuild_view, write_settings
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

EVERYTHING = """
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
    """INSERT INTO everything (id, n, d, ts, tstz, ti, tz) VALUES (5, '-Infinity',
    '5874897-12-31', '294246-12-31 23:59:59.999999', '4714-11-24 00:00:00+00 BC',
    '00:00:00.000001', '24:00:00-15:59')""",
    "INSERT INTO everything (id, d, ts) VALUES (6, '4714-11-24 BC', '4714-11-24 00:00 BC')",
)

# Types whose text is their form: the values of a column, and of an array of the type.
ODD_TYPES = {
    "money": ("-92233720368547758.08", "0", "1234.5"),
    "bit(5)": ("00101", "11111"),
    "bit varying": ("", "0010"),
    "inet": ("10.0.0.1/8", "::1", "::ffff:1.2.3.4/120"),
    "cidr": ("10.0.0.0/8", "2001:db8::/32"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "tsvector": ("fat:2A cat:3B 'a b':1", ""),
    "tsquery": ("fat & (rat | !cat:AB) <-> 'x y'",),
    "point": ("(1,2)", "(NaN,-Infinity)", "(0.1,1e-300)"),
    "line": ("{1,-1,0.1}",),
    "lseg": ("[(1,2),(3,4)]",),
    "box": ("(3,4),(1,2)", "(0.1,0.2),(0,0)"),
    "path": ("[(1,2),(3,4)]", "((1,2),(3,4))"),
    "polygon": ("((0,0),(1,0),(0.3,1))",),
    "circle": ("<(1,2),0.3>",),
    "int4range": ("[1,5)", "empty", "(,)"),
    "int8range": ("[-9223372036854775808,)",),
    "numrange": ("(0.10,1e400]",),
    "tsrange": ('["2024-01-01 00:00:00",infinity]', "(,0044-03-15 12:00:00 BC]"),
    "tstzrange": ("[2024-01-01 00:00:00+14,)",),
    "daterange": ("[2024-02-29,infinity)",),
    "int4multirange": ("{}", "{[1,3),[5,9)}"),
    "datemultirange": ("{[2024-01-01,2024-02-01)}",),
    "floats": ("[0.1,Infinity)",),
    "interval": ("-1 year 2 mons -3 days 04:05:06.000007", "178000000 years", "0"),
    "time": ("24:00:00", "23:59:59.999999"),
    "time with time zone": ("24:00:00+15:59", "00:00:00-08"),
    "oid": ("4294967295", "0"),
    "regclass": ("everything", "pg_class", "parts"),
    "regtype": ("mood", "integer", "integer[]"),
    "regprocedure": ("lower(text)",),
    "regnamespace": ("public",),
    "pg_lsn": ("FFFFFFFF/FFFFFFFF", "0/0"),
    "jsonpath": ("$.a[*] ? (@.b > 1.5)",),
    '"char"': ("x", "", "\\377"),
    "name": ("", "a name"),
    "xid": ("4294967295",),
    "xid8": ("18446744073709551615",),
    "tid": ("(4294967295,65535)",),
    "pg_snapshot": ("10:20:10,14,15",),
    "int2vector": ("1 -2 3", ""),
    "oidvector": ("1 4294967295",),
    "aclitem": ("postgres=rw/postgres",),
    "pair": ("(1,)", '("-2","a, ""b"" \\\\ ü")', "(,)"),
    "nested": ('("(1,x)","{""(2,y)"",NULL}")',),
    "mood": ("sad", "glad"),
    "price": ("-0.05", "123456.70"),
    "feeling": ("ok",),
    "amounts": ("{1.50,NULL}", "{}"),
    "places": ('{"(1,a)",NULL,"(,)"}',),
    "embedding": ("[1,2.5,-3e-07]",),
    "geometry": ("0101000020E6100000000000000000F03F0000000000000040", "POINT(1 2) : , ;"),
    "mystery": ("a:b", "", "NULL"),
    "numeric(5, -2)": ("-12300", "0"),
    "numeric(2, 5)": ("0.00012",),
    "numeric(38, 38)": ("0.00000000000000000000000000000000000001",),
    "numeric(50, 10)": ("-1234567890123456789012345678901234567890.1234567890", "NaN"),
    "bytea": ("\\x", "\\x00", "\\xdeadbeef"),
    "uuid": ("00000000-0000-0000-0000-0000000000ff",),
    "char(3)": ("", "ab"),
    "jsonb": ("null", '{"a": [1e400, "\\u00fc"]}'),
}
ODD_DDL = """
CREATE TYPE pair AS (n integer, t text);
CREATE TYPE nested AS (one pair, more pair[]);
CREATE TYPE floats AS RANGE (subtype = float8);
CREATE DOMAIN cents AS numeric(8, 2);
CREATE DOMAIN price AS cents CHECK (VALUE < 1000000);
CREATE DOMAIN feeling AS mood;
CREATE DOMAIN amounts AS numeric(6, 2)[];
CREATE DOMAIN places AS pair[];
CREATE EXTENSION vector;
CREATE DOMAIN embedding AS vector(3);
"""
# Extension types stand here by name only; as PostGIS's, an array of `geometry` is parted by ":".
STAND_IN = """
CREATE TYPE {0};
CREATE FUNCTION {0}_in(cstring) RETURNS {0} LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION {0}_out({0}) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE {0} (INPUT = {0}_in, OUTPUT = {0}_out, LIKE = text, DELIMITER = ':');
"""

OTHER_TABLES = """
CREATE TABLE by_domain (p price, f feeling, t text, PRIMARY KEY (f, p));
CREATE TABLE long_numbers (id integer PRIMARY KEY, n numeric);
CREATE TABLE escaped (id integer PRIMARY KEY, ats timestamp[], atz timestamptz[], a amounts);
CREATE TABLE shaped (gone integer, b integer, id integer GENERATED ALWAYS AS IDENTITY,
    t text, PRIMARY KEY (id));
ALTER TABLE shaped DROP gone;
ALTER TABLE shaped ADD last serial;
CREATE TABLE parts (id integer PRIMARY KEY, a integer, t text) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (100);
CREATE TABLE parts_high (t text, gone integer, a integer, id integer NOT NULL);
ALTER TABLE parts_high DROP gone;
ALTER TABLE parts ATTACH PARTITION parts_high FOR VALUES FROM (100) TO (200000);
CREATE TABLE parent (id integer PRIMARY KEY, t text);
CREATE TABLE child (more text, PRIMARY KEY (id)) INHERITS (parent);
CREATE TABLE in_full (id integer PRIMARY KEY, t text);
ALTER TABLE in_full REPLICA IDENTITY FULL;
CREATE TABLE by_index (id integer PRIMARY KEY, t text);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_pkey;
CREATE UNLOGGED TABLE scratch (id integer PRIMARY KEY);
CREATE MATERIALIZED VIEW summary AS SELECT 1 AS one;
"""
OTHER_ROWS = (
    "INSERT INTO by_domain VALUES (0.05, 'sad', 'a'), (123456.7, 'sad', ''), (0.05, 'glad', NULL)",
    """INSERT INTO long_numbers VALUES (1, ('-' || repeat('9', 131072) || '.' ||
    repeat('1', 16383))::numeric), (2, ('0.' || repeat('0', 16382) || '1')::numeric)""",
    """INSERT INTO escaped VALUES (1, '{294276-12-31 23:59:59.999999, NULL, infinity}',
    '{294247-01-10 04:00:54.775807+00}', '[0:1]={1,2}'),
    (2, '{294247-01-10 04:00:54.775806}', '{-infinity}', '{{1},{NULL}}')""",
    "INSERT INTO shaped (b, t) VALUES (1, 'x'), (NULL, '')",
    "INSERT INTO parts VALUES (1, 10, 'low'), (150, NULL, 'high')",
    "INSERT INTO parent VALUES (1, 'parent')",
    "INSERT INTO child VALUES (1, 'child', 'more')",
    "INSERT INTO in_full VALUES (1, repeat('long', 3000)), (2, NULL)",
    "INSERT INTO by_index VALUES (1, 'x')",
    "SELECT lo_create(0)",
)
OTHER_CHANGES = (
    "UPDATE by_domain SET p = p + 1, f = 'ok' WHERE t = 'a'",
    "UPDATE long_numbers SET n = -n, id = id + 10",
    "UPDATE escaped SET id = id + 10",
    "UPDATE shaped SET b = b + 1",
    "UPDATE parts SET id = 199 - id, a = 7",  # from one partition to the other
    "UPDATE parent SET t = 'both'",  # of both tables
    "DELETE FROM ONLY parent",
    "UPDATE in_full SET id = id + 10",
    "UPDATE by_index SET id = id + 10",
)
NOT_CAPTURED = (
    "large objects: 1",
    'materialized views: "public.summary"',
    'positions of sequences: "public.shaped_id_seq", "public.shaped_last_seq"',
    'unlogged tables: "public.scratch"',
)
VIEWS = {
    "everything": "-- key: id\n-- sinks: delta, search, cache",
    "odd": "-- key: id\n-- sinks: delta",
    "by_domain": "-- key: f, p\n-- sinks: delta",
    "long_numbers": "-- key: id\n-- sinks: delta",
}
"""`escaped` has none: its values have no exact place in Spark. The other tables' types are here."""
READ = ("everything", "odd", "long_numbers", "escaped")
"""Tables that `make test` reads by both engines too, in which all types are."""
ESCAPED = {
    ('"ats" (timestamp without time zone[])', '{"294276-12-31 23:59:59.999999",NULL,infinity}'),
    ('"a" (numeric(6,2)[])', "[0:1]={1.00,2.00}"),
    ('"a" (numeric(6,2)[])', "{{1.00},{NULL}}"),
}
"""Its columns and values that no engine has an exact place for."""


def odd_table() -> str:
    """Two columns for each type: one of it, one of its array."""
    columns = [f"c{n} {kind}, a{n} {kind}[]" for n, kind in enumerate(ODD_TYPES)]
    return f"CREATE TABLE odd (id integer PRIMARY KEY, {', '.join(columns)})"


def odd_rows(first: int) -> str:
    """Each row has a value of each type alone, and all of its values in an array."""
    rows = []
    for row in range(max(map(len, ODD_TYPES.values()))):
        values = [str(first + row)]
        for kind, texts in ODD_TYPES.items():
            values += [quoted(texts[row % len(texts)], kind)]
            listed = [quoted(text, kind) for text in texts[row:]]
            values += [f"ARRAY[{', '.join([*listed, 'NULL'])}]::{kind}[]"]
        rows.append(f"({', '.join(values)})")
    return f"INSERT INTO odd VALUES {', '.join(rows)}"


def quoted(text: str, kind: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'::{kind}"


@pytest.fixture
def project(endpoints, dsn, prefix, tmp_path):
    write_settings(tmp_path, endpoints, dsn, prefix)
    return CapturedProject(tmp_path, dsn)


@pytest.fixture
def capture(project, dsn, kafka, registry, prefix):
    return capture_command(project, dsn, kafka, registry, prefix)


def capture_command(project, dsn, kafka, registry, prefix):
    settings = (project.root / "changelog.toml").read_text()
    made = CaptureCommand(
        dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=project.root
    )
    (project.root / "changelog.toml").write_text(settings)
    return made


def verified(capture) -> dict[str, int]:
    """Compare every table with the source; returns their numbers of rows."""
    (report,) = capture.command("verify", "--json")
    tables = {table["view"].removeprefix("public."): table for table in report["tables"]}
    assert [name for name, table in tables.items() if not table["verified"]] == [], report
    return {name: table["rows"] for name, table in tables.items()}


@pytest.mark.parametrize("read", first(1, [READ, None]), ids=["types", "tables"])
def test_every_type_comes_out_of_snapshot_and_stream_as_it_went_in(
    spark, project, capture, capsys, monkeypatch, read
):
    stand_ins = "".join(STAND_IN.format(name) for name in ("geometry", "mystery"))
    project.execute(EVERYTHING + ";" + stand_ins + ODD_DDL + OTHER_TABLES + odd_table())
    project.execute(";".join((*ROWS, odd_rows(1), *OTHER_ROWS)))
    code, _, said = capture.run("--until", "now")
    assert code == 0, said
    # Only the type that nobody knows, alone and in its array.
    assert said.count("is carried as PostgreSQL's text") == 2
    assert said.count("type mystery") == 2
    for what in NOT_CAPTURED:
        assert said.count(f"not captured: {what}") == 1
    # The stream has to give the same values as the snapshot did.
    project.execute(
        "UPDATE everything SET id = id + 10; UPDATE odd SET id = id + 10;" + ";".join(OTHER_CHANGES)
    )
    project.execute(";".join((*ROWS, odd_rows(1), *OTHER_ROWS[3:5], OTHER_ROWS[5])))
    columns = ", ".join(f"c{n}, a{n}" for n in range(len(ODD_TYPES)))
    project.execute(
        f"INSERT INTO odd SELECT 100 * g + id, {columns} FROM odd, generate_series(1, 20) g"
    )
    capture.catch_up()
    assert verified(capture) == {
        "everything": 12,
        "odd": 126,
        "by_domain": 3,
        "long_numbers": 2,
        "escaped": 2,
        "shaped": 4,
        "parts": 4,
        "parent": 1,
        "child": 1,
        "in_full": 2,
        "by_index": 1,
    }
    for table, head in VIEWS.items():
        project.view(f"{table}_copy.sql", f"{head}\nSELECT * FROM {table}")
    done = rebuild_view(capsys, monkeypatch, project, "--all", "--json")
    assert done.code == 0, done.err
    views = {view["view"]: (view["verified"], view["mismatches"]) for view in done.results}
    assert views == {f"{table}_copy": (True, 0) for table in VIEWS}
    log = Log.open(project.root, spark=spark)
    spark.dataSource.register(ChangelogSource)
    source = spark.read.format("changelog").option("project", str(project.root))
    for name in read or log.tables().names:
        both_engines_agree(log.table(name))
        if name != "escaped":
            by_name = source.option("table", name).load().toArrow()
            assert by_name.schema == log.table(name).schema()
            agree(by_name, log.table(name).arrow(engine="local"))


def both_engines_agree(table):
    """Read a table here and by Spark: the same schema, the same values, the same refusal."""
    if table.name == "escaped":
        for engine in ("local", "spark"):
            with pytest.raises(LogError) as refused:
                table.arrow(engine=engine)
            # Of several such values each engine names the one that it comes to first.
            assert named(refused.value) in ESCAPED
        return
    found = table.arrow(engine="local")
    by_spark = table.arrow(engine="spark")
    assert found.schema == by_spark.schema
    assert found.num_rows
    agree(found, by_spark)


def named(refusal):
    (found,) = re.findall(r"column (.*): the value (.*) of the row with", str(refusal))
    return found


def agree(one, other):
    rows = [sorted(map(comparable, rows_as_stored(each))) for each in (one, other)]
    assert rows[0] == rows[1]


def rows_as_stored(table):
    """Return rows whose days and moments are numbers: Python has no value for all of them."""
    columns = [stored(column.combine_chunks()) for column in table.columns]
    return zip(*columns, strict=True)


def stored(values):
    kind = values.type
    if pa.types.is_list(kind):
        items = iter(stored(values.flatten()))
        lengths = pc.list_value_length(values).to_pylist()
        return [None if n is None else [next(items) for _ in range(n)] for n in lengths]
    if pa.types.is_date32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.view(pa.int64())
    return values.to_pylist()


def comparable(row):
    return repr(row)  # tells -0.0 from 0.0, and NaN from nothing else


def test_a_value_that_no_spark_type_holds_fails_loudly_and_names_its_place(
    spark, project, capture, capsys, monkeypatch
):
    project.execute("CREATE TABLE prices (id integer PRIMARY KEY, price numeric(8, 2))")
    project.execute("INSERT INTO prices VALUES (1, 1.25), (7, 'NaN')")
    project.execute(
        "CREATE TABLE dated (d date, t timestamp, z timestamptz, price numeric(8, 2), "
        "PRIMARY KEY (d, t, z))"
    )
    capture.catch_up()
    # The log has it, exactly; only the state of Spark has no place for it.
    assert capture.rows("prices")[(7,)]["price"] == "NaN"
    project.view("prices_copy.sql", "-- key: id\n-- sinks: delta\nSELECT * FROM prices")
    done = rebuild_view(capsys, monkeypatch, project, "prices_copy")
    assert done.code == 1
    assert "NaN" in done.err
    assert "price" in done.err
    assert not (project.warehouse / "prices_copy" / "_delta_log").exists()
    prices = Log.open(project.root, spark=spark).table("prices")
    refusals = []
    for engine in ("local", "spark"):
        with pytest.raises(LogError, match=r"the value NaN of the row with key \(7\)") as refused:
            prices.arrow(engine=engine)
        refusals.append(str(refused.value.args[0]))
    assert refusals[0] == refusals[1]
    assert prices.arrow(["id"]).num_rows == 2
    for end in ("infinity", "-infinity"):
        project.execute("TRUNCATE dated")
        project.execute(f"INSERT INTO dated VALUES ('{end}', '{end}', '{end}', 'NaN')")
        capture.catch_up()
        dated = Log.open(project.root, spark=spark).table("dated")
        for read in (partial(dated.arrow, engine="local"), partial(dated.arrow, engine="spark")):
            with pytest.raises(LogError, match=rf"with key \({end}, {end}, {end}\) has no exact"):
                read()
