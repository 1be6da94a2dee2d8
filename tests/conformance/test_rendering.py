"""Rows as JSON, against texts written by hand."""

from __future__ import annotations

import json

import pytest

from changelog.contract.base.errors import SinkError
from views.sinks.rendering import rendered

pytestmark = pytest.mark.spark

MAX, MIN = 2**63 - 1, -(2**63)

CASES = [
    ("true", "true"),
    ("cast(null as boolean)", "null"),
    ("cast(-128 as tinyint)", "-128"),
    ("cast(9223372036854775807 as bigint)", "9223372036854775807"),
    ("cast(0.1 as float)", "0.1"),
    ("0.1D + 0.2D", "0.30000000000000004"),
    ("double('NaN')", '"NaN"'),
    ("float('Infinity')", '"Infinity"'),
    ("double('-Infinity')", '"-Infinity"'),
    ("cast(0 as decimal(38,18))", '"0.000000000000000000"'),
    ("cast('-0.0000001' as decimal(20,10))", '"-0.0000001000"'),
    (
        "cast('12345678901234567890123456789012345678' as decimal(38,0))",
        '"12345678901234567890123456789012345678"',
    ),
    ("'é\"\\\\ 😀'", '"é\\"\\\\ 😀"'),
    ("''", '""'),
    ("X''", '""'),
    ("cast(repeat('abc', 40) as binary)", '"' + "YWJj" * 40 + '"'),
    ("date'2013-01-02'", '"2013-01-02"'),
    ("date'0001-01-01'", '"0001-01-01"'),
    ("date'9999-12-31'", '"9999-12-31"'),
    ("date'+12345-01-02'", '"12345-01-02"'),
    ("date'0000-12-31'", '"0001-12-31 BC"'),
    ("date'-0043-03-15'", '"0044-03-15 BC"'),
    ("date_from_unix_date(2147483647)", '"infinity"'),
    ("date_from_unix_date(-2147483648)", '"-infinity"'),
    ("date_from_unix_date(2147483646)", '"5881580-07-10"'),
    ("timestamp'2013-01-02 03:04:05Z'", '"2013-01-02T03:04:05.000000Z"'),
    ("timestamp'2013-01-02 03:04:05.12+02:00'", '"2013-01-02T01:04:05.120000Z"'),
    ("timestamp_micros(-1)", '"1969-12-31T23:59:59.999999Z"'),
    (f"timestamp_micros({MAX})", '"infinity"'),
    (f"timestamp_micros({MAX - 1})", '"294247-01-10T04:00:54.775806Z"'),
    ("timestamp_micros(-9223372036854775807 - 1)", '"-infinity"'),
    ("timestamp_ntz'2013-03-10 02:30:00.000001'", '"2013-03-10T02:30:00.000001"'),
    ("timestamp_ntz'0001-01-01 00:00:00'", '"0001-01-01T00:00:00.000000"'),
    ("timestamp_ntz'-0043-03-15 12:00:00'", '"0044-03-15T12:00:00.000000 BC"'),
    (f"cast(timestamp_micros({MAX}) as timestamp_ntz)", '"infinity"'),
    ("array(1, null)", "[1,null]"),
    ("array(1.50, null)", '["1.50",null]'),
    ("array(cast(null as date), date'2020-01-01')", '[null,"2020-01-01"]'),
    ("cast(null as array<date>)", "null"),
    ("named_struct('a', null, 'b', 1.5)", '{"a":null,"b":"1.5"}'),
    ("cast(null as struct<a:date>)", "null"),
    (
        "array(named_struct('z', X'00', 'y', array(date'2020-01-01')), null)",
        '[{"z":"AA==","y":["2020-01-01"]},null]',
    ),
    ("map('k', null, 'l', 1.5)", '{"k":null,"l":"1.5"}'),
    ("map(date'2020-01-01', 1)", '{"2020-01-01":1}'),
    ("map(7, X'00')", '{"7":"AA=="}'),
]

IDENTITIES = [
    ("'UA' a, 1545 b", ["a"], "UA"),
    ("'UA' a, 1545 b", ["b"], "1545"),
    ("'UA' a, 1545 b", ["a", "b"], '["UA",1545]'),
    ("'UA' a, 1545 b", ["b", "a"], '[1545,"UA"]'),
    ("'a\"b,\\\\' a, true b", ["a", "b"], '["a\\"b,\\\\",true]'),
    ("date'2020-01-01' a, 1.50 b", ["a", "b"], '["2020-01-01","1.50"]'),
    ("date'2020-01-01' a, 1.50 b", ["b"], "1.50"),
    (
        "timestamp'2020-01-01 00:00:00Z' a, X'ff' b",
        ["a", "b"],
        '["2020-01-01T00:00:00.000000Z","/w=="]',
    ),
    ("cast(null as string) a, 1 b", ["a", "b"], None),
    ("cast(null as int) a, 1 b", ["b", "a"], None),
    ("cast(null as date) a, 1 b", ["a"], None),
    ("'' a, 1 b", ["a"], ""),
]


def test_each_value_has_its_text(spark):
    columns = ", ".join(f"{sql} c{n}" for n, (sql, _) in enumerate(CASES))
    [row] = rendered(spark.sql(f"select 1 id, {columns}"), ["id"]).collect()
    members = ",".join(f'"c{n}":{text}' for n, (_, text) in enumerate(CASES))
    assert json.loads(row.document) == json.loads(f'{{"id":1,{members}}}')
    assert row.document == f'{{"id":1,{members}}}'


@pytest.mark.parametrize(("sql", "key", "identity"), IDENTITIES)
def test_an_id_is_the_text_of_its_key(spark, sql, key, identity):
    [row] = rendered(spark.sql(f"select {sql}"), key).collect()
    assert row.id == identity


def test_odd_column_names_are_kept(spark):
    rows = spark.sql("select 1 `a.b`, 2 `c d`, 3 `e``f`")
    [row] = rendered(rows, ["a.b"]).collect()
    assert row.document == '{"a.b":1,"c d":2,"e`f":3}'


@pytest.mark.parametrize(
    ("setting", "value"),
    [("spark.sql.session.timeZone", "Europe/Paris"), ("spark.sql.ansi.enabled", "false")],
)
def test_a_session_that_would_change_texts_is_refused(spark, setting, value):
    before = spark.conf.get(setting)
    spark.conf.set(setting, value)
    try:
        with pytest.raises(SinkError, match="Spark session"):
            rendered(spark.sql("select 1 id"), ["id"])
    finally:
        spark.conf.set(setting, before)
