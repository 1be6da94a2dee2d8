"""Types of PostgreSQL with hostile values, and what a view can ask of equality and order."""

from __future__ import annotations

DDL = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad');
CREATE TYPE pair AS (n numeric, c char(3));
CREATE TYPE spans AS RANGE (subtype = numeric);
CREATE DOMAIN code AS char(4);
CREATE DOMAIN price AS numeric;
"""

CORE: dict[str, tuple[str, ...]] = {
    # The first two are written as constants too.
    "char(5)": ("ab", "a", "a\t", "", "B "),
    "bpchar": ("ab", "a", "a ", "", "A"),
    "text": ("ab", "a", "a ", "Z", "\u00e9"),
    "varchar(7)": ("ab", "a", "a ", "Z", "\U0001f600"),
    "code": ("ab", "a", "b", "", "B"),
    "numeric": ("2", "10", "2.0", "9", "NaN"),
    "numeric(50,10)": ("2", "10", "100", "9", "-1"),
    "numeric(12,3)": ("2", "10", "2.500", "9", "-1"),
    "price": ("2", "10", "2.00", "9", "-1"),
    "interval": ("1 day", "-1 day", "24 hours", "1 mon", "30 days"),
    "uuid": (
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "{0b000000-0000-0000-0000-00000000000b}",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "9c000000-0000-0000-0000-000000000000",
        "00000000-0000-0000-0000-000000000000",
    ),
    "time": ("9:00", "10:00:00", "10:00:00.5", "24:00:00", "10:00:00.25"),
    "timetz": ("10:00+00", "12:00:00+02:00", "09:00:00-08", "10:00:00.5+00", "23:00:00+14"),
    "date": ("2024-02-29", "0001-01-01", "2024-03-01", "1999-12-31", "9999-12-31"),
    "timestamp": ("2024-02-29 01:02:03", "2024-02-29 01:02:03.000001", "1969-12-31", "1900-1-1"),
    "boolean": ("true", "false"),
    "smallint": ("1", "-1", "32767", "0"),
    "bigint": ("1", "-1", "9223372036854775807", "0"),
    "bytea": ("\\x00", "\\xff", "\\x", "\\x00ff"),
    "double precision": ("1", "NaN", "-0", "0", "-Infinity"),
    "real": ("1", "NaN", "-0", "0", "Infinity"),
    "mood": ("sad", "glad", "ok"),
    "money": ("2", "10", "-1", "1000"),
    "inet": ("10.0.0.1", "9.0.0.1", "10.0.0.1/8", "::1"),
    "cidr": ("10.0.0.0/8", "9.0.0.0/8", "10.0.0.0/16", "::/0"),
    "macaddr": ("08:00:2b:01:02:03", "08:00:2B:01:02:04", "ff:00:00:00:00:00"),
    "bit(3)": ("010", "100", "011"),
    "varbit": ("01", "010", "", "1"),
    "json": ('{"a":1}', "[]", "1"),
    "jsonb": ("1.0", "1.00", "[]", '{"a": 1}'),
    "int4range": ("[1,5)", "(0,4]", "empty", "[10,11)"),
    "numrange": ("[1,2)", "[1.0,2.0)", "empty"),
    "spans": ("[1,2)", "[1.0,2.0)"),
    "pair": ("(1,a)", "(1.0,a)", "(10,b)", "(,)"),
    '"char"': ("a", "b", ""),
    "name": ("ab", "a", "Z"),
    "integer[]": ("{1,2}", "{1,NULL}", "{}", "{10}"),
    "text[]": ("{a,b}", "{a}", "{}"),
    "numeric[]": ("{1,2.0}", "{1.0,2}"),
    "double precision[]": ("{0,NaN}", "{-0,NaN}"),
}
MORE: dict[str, tuple[str, ...]] = {
    "integer": ("1", "-1", "10"),
    "oid": ("1", "4294967295", "0"),
    "timestamptz": ("2024-02-29 01:02:03+02", "2024-02-28 23:02:03+00", "1900-1-1 00:00+00"),
    "char(1)": ("a", "", "B"),
    "varchar": ("ab", "a ", "Z"),
    "macaddr8": ("08:00:2b:01:02:03:04:05", "09:00:2b:01:02:03:04:05"),
    "int8range": ("[1,5)", "(0,4]", "[10,11)"),
    "daterange": ("[2024-01-01,2024-02-01)", "(2023-12-31,2024-01-31]"),
    "tsrange": ("[2024-01-01,2024-02-01)", "[2023-01-01,)"),
    "tstzrange": ("[2024-01-01,2024-02-01)", "[2024-01-01 02:00+02,2024-02-01)"),
    "int4multirange": ("{[1,5)}", "{[1,3),[3,5)}"),
    "nummultirange": ("{[1,5)}", "{[1.0,5)}"),
    "point": ("(1,2)", "(1.0,2)"),
    "box": ("(3,4),(1,2)", "(1,2),(3,4)", "(2,4),(0,2)"),
    "circle": ("<(1,2),3>", "<(0,0),3>"),
    "lseg": ("[(0,0),(1,1)]", "[(5,5),(6,6)]"),
    "path": ("[(0,0),(1,1)]", "[(5,5),(6,6)]"),
    "polygon": ("((0,0),(1,0),(1,1))", "((0,0),(0,1),(1,1))"),
    "line": ("{1,-1,0}", "{2,-2,0}"),
    "tsvector": ("b a", "a b", "a:1"),
    "tsquery": ("a & b", "b & a"),
    "jsonpath": ("$.a", "$.b"),
    "pg_lsn": ("0/0", "ff/10", "A/1"),
    "xid": ("10", "9", "4294967295"),
    "xid8": ("10", "9"),
    "tid": ("(10,1)", "(9,1)"),
    "pg_snapshot": ("10:20:10", "9:20:9"),
    "int2vector": ("1 2", "10"),
    "oidvector": ("1 2", "10"),
    "regclass": ("pg_class", "pg_type"),
    "uuid[]": ("{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}", "{}"),
    "date[]": ("{2024-01-01}", "{2024-1-1}"),
    "char(3)[]": ("{a,b}", "{a}"),
    "numeric(5,2)[]": ("{1,2.0}", "{1.0,2}"),
    "interval[]": ("{1 day}", "{24 hours}"),
}

FEW = (
    *("char(5)", "text", "varchar(7)", "code", "numeric", "numeric(50,10)", "numeric(12,3)"),
    *("interval", "uuid", "timetz", "date", "timestamp", "boolean", "bigint"),
    *("double precision", "mood", "money", "jsonb", "numrange", "pair", "integer[]"),
)
"""Types that `make test` looks at, one of each way of being compared; `make test-all` at all."""
WHOLE = ("char(5)", "uuid", "double precision", "integer[]")
"""Types of which it looks at groups, joins and sets too."""

OF_TWO_ROWS = (
    *("x.{c} = y.{c}", "x.{c} <> y.{c}", "x.{c} < y.{c}", "x.{c} >= y.{c}"),
    "x.{c} IS DISTINCT FROM y.{c}",
    "x.{c} BETWEEN y.{c} AND {b}",
    "CASE x.{c} WHEN y.{c} THEN 1 WHEN {a} THEN 2 ELSE 3 END",
    "nullif(x.{c}, y.{c}) IS NULL",
    "coalesce(x.{c}, {a}) = y.{c}",
    "greatest(x.{c}, y.{c}) = x.{c}",
    "CASE WHEN x.id > 2 THEN x.{c} ELSE y.{c} END = {a}",
    *("(x.id, x.{c}) = (y.id, y.{c})", "(x.id, x.{c}) NOT IN ((1, y.{c}), (2, {a}))"),
)
OF_NULLS = ("x.{c} IS NULL", "NOT x.{c} IS NOT NULL", "count(x.{c}) OVER ()")
MIXED = ("text", "char(5)", "varchar(7)", "numeric(12,3)", "bigint", "date", "timestamp", "boolean")
"""Types of which a column stands beside one of each other."""
OF_TWO_TYPES = (
    *("x.{c} = y.{o}", "x.{c} <> y.{o}", "x.{c} < y.{o}", "x.{c} IN (y.{o})"),
    *("x.{c} BETWEEN y.{o} AND y.{o}", "x.{c} IS DISTINCT FROM y.{o}", "nullif(x.{c}, y.{o})"),
    *("coalesce(x.{c}, y.{o})", "greatest(x.{c}, y.{o})"),
    "CASE WHEN x.id > 2 THEN x.{c} ELSE y.{o} END",
    "CASE x.{c} WHEN y.{o} THEN 1 END",
    *("x.{c} IN (y.{o}, y.{c})", "x.{c} IN (y.{o}, x.{o})", "x.{c} BETWEEN y.{o} AND y.{c}"),
    "CASE x.{c} WHEN y.{o} THEN 1 WHEN y.{c} THEN 2 END",
    "x.{c} = (SELECT q.{o} FROM n AS q WHERE q.id = 2)",
    "x.{c} < (SELECT q.{o} FROM n AS q WHERE q.id = 2)",
    "(SELECT count(*) FROM m WHERE {c} NOT IN (SELECT {o} FROM n))",
    "(SELECT count(*) FROM m WHERE {c} IN (SELECT {o} FROM n))",
    "(SELECT count(*) FROM m JOIN n ON m.{c} = n.{o})",
    "(SELECT count(*) FROM (SELECT {c} FROM m UNION ALL SELECT {o} FROM n) q)",
)
OF_A_CONSTANT = (
    *("x.{c} = {a}", "x.{c} <> {b}", "{a} = x.{c}", "x.{c} < {b}", "x.{c} >= {a}"),
    *("x.{c} IN ({a}, {b})", "x.{c} NOT IN ({a})", "x.{c} BETWEEN {a} AND {b}"),
    "CASE x.{c} WHEN {a} THEN 1 ELSE 2 END",
    "lag(x.{c}, 1, {a}) OVER (ORDER BY x.id NULLS LAST, y.id NULLS LAST) = {a}",
)
OF_TEXTS = (
    *("length(x.{c})", "x.{c} || 'x'", "upper(x.{c})", "x.{c} LIKE {a}", "x.{c} LIKE '%a%'"),
    *("substring(x.{c}, 1, 4)", "replace(x.{c}, ' ', '-')"),
    *("coalesce(x.{c}, 'none')", "x.{c}", "x.{c} || y.{c}", "concat_ws(x.{c}, 'a', 'b')"),
)
OF_AGGREGATES = ("min({c})", "max({c})", "count(DISTINCT {c})", "count({c})")
OF_ALL_ROWS = (
    "(SELECT count(*) FROM (SELECT DISTINCT {c} FROM m) q)",
    "(SELECT count(*) FROM (SELECT {c} FROM m GROUP BY {c}) q)",
    "(SELECT max(k) FROM (SELECT count(*) AS k FROM m GROUP BY {c}) q)",
    "(SELECT count(*) FROM m JOIN n ON m.{c} = n.{c})",
    "(SELECT count(*) FROM m JOIN n USING ({c}))",
    "(SELECT count(*) FROM m LEFT JOIN n ON n.{c} = m.{c} AND n.id > m.id)",
    "(SELECT count(*) FROM m WHERE {c} IN (SELECT {c} FROM n WHERE id < 4))",
    "(SELECT count(*) FROM m WHERE EXISTS (SELECT 1 FROM n WHERE n.{c} = m.{c} AND n.id <> m.id))",
    "(SELECT count(*) FROM m WHERE {c} = (SELECT max({c}) FROM n))",
    "(SELECT count(*) FROM (SELECT {c} FROM m UNION SELECT {c} FROM n) q)",
    "(SELECT count(*) FROM (SELECT {c} FROM m INTERSECT SELECT {c} FROM n) q)",
    "(SELECT count(*) FROM (SELECT {c} FROM m UNION SELECT {a}) q)",
    "(SELECT count(*) FROM (SELECT {c} FROM m EXCEPT SELECT {a}) q)",
    "(SELECT count(*) FROM (SELECT {c} FROM m EXCEPT SELECT {c} FROM n WHERE id < 3) q)",
    "(SELECT sum(r) FROM (SELECT id * rank() OVER (ORDER BY {c} NULLS LAST) AS r FROM m) q)",
    "(SELECT sum(r) FROM (SELECT id * count(*) OVER (PARTITION BY {c}) AS r FROM m) q)",
    "(SELECT count(*) FROM (SELECT {c} AS z FROM m) q WHERE z = {a})",
    "(SELECT max(k) FROM (SELECT count(*) AS k FROM m GROUP BY {c} HAVING min({c}) < {b}) q)",
)
