"""Comparisons of columns: kept as they stand, made to mean what PostgreSQL means, or refused."""

import re
from pathlib import Path

import pytest

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType, Kind, Locale, TypType, array_type, column_type
from views.meaning.types import meaning_of
from views.meaning.view import as_meant
from views.project.catalog import with_views
from views.project.definition import text_of
from views.project.sql import parse_sql_view

PATH = Path("v.sql")
CHAR, NUMERIC = column_type("bpchar", "character(10)"), column_type("numeric", "numeric")
GERMAN = ColumnType("text", Kind.STRING, locale=Locale("de_DE.utf8"))
NO_CASE = ColumnType("text", Kind.STRING, locale=Locale("nocase"), deterministic=False)
COLUMNS = {
    "id": column_type("int4", "integer"),
    "c": CHAR,
    "d": CHAR,
    "short": column_type("bpchar", "character(4)"),
    "bp": column_type("bpchar", "bpchar"),
    "t": column_type("text", "text"),
    "vc": column_type("varchar", "character varying(9)"),
    "u": column_type("uuid", "uuid"),
    "iv": column_type("interval", "interval"),
    "nu": NUMERIC,
    "j": column_type("jsonb", "jsonb"),
    "ti": column_type("time", "time(3) without time zone"),
    "ip": column_type("inet", "inet"),
    "mood": column_type("mood", "mood", form=TypType.ENUM, builtin=False),
    "pair": column_type("pair", "pair", form=TypType.COMPOSITE, builtin=False),
    "odd": column_type("odd", "odd", builtin=False),
    "ci": column_type("citext", "citext", builtin=False),
    "german": GERMAN,
    "no_case": NO_CASE,
    "nus": array_type(NUMERIC, "numeric[]"),
    "chars": array_type(CHAR, "character(10)[]"),
    "moods": array_type(column_type("mood", "mood", form=TypType.ENUM, builtin=False), "mood[]"),
    "uuids": array_type(column_type("uuid", "uuid"), "uuid[]"),
    "ints": array_type(column_type("int4", "integer"), "integer[]"),
    "r": column_type("int4range", "int4range", form=TypType.RANGE),
    "tt": column_type("timetz", "time with time zone"),
    "lsn": column_type("pg_lsn", "pg_lsn"),
    "dr": column_type("daterange", "daterange", form=TypType.RANGE),
    "tr": column_type("tsrange", "tsrange", form=TypType.RANGE),
    "nr": column_type("numrange", "numrange", form=TypType.RANGE),
    "q": column_type("tsquery", "tsquery"),
}
TABLES = {TableName("public", "x"): COLUMNS, TableName("public", "y"): COLUMNS}


def meant(sql, key="id"):
    """Return the text of a query as the engines compute it."""
    spec = parse_sql_view("v", PATH, f"-- key: {key}\n{sql}")
    found = as_meant(spec, TABLES, dict.fromkeys(TABLES, ("id",)))
    text = (found.sql or "").partition("\n")[2]
    return re.sub(r"trim\(TRAILING ' ' FROM ([^()]+)\)", r"rtrim(\1)", text)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("WHERE c = 'A  '", "WHERE rtrim(c) = 'A'"),
        ("WHERE c IN ('A', 'B ')", "WHERE rtrim(c) IN ('A', 'B')"),
        ("WHERE x.c < 'b'", "WHERE rtrim(x.c) < 'b'"),
        ('WHERE public.x.`c` <> "b "', 'WHERE rtrim(public.x.`c`) <> "b"'),
        ("WHERE c BETWEEN 'a' AND d", "WHERE rtrim(c) BETWEEN 'a' AND rtrim(d)"),
        ("WHERE c = short", "WHERE rtrim(c) = rtrim(short)"),
        ("WHERE c = t", "WHERE rtrim(c) = t"),
        # As char(n), says PostgreSQL's EXPLAIN: (c = (vc)::bpchar).
        ("WHERE c = vc", "WHERE rtrim(c) = rtrim(vc)"),
        ("WHERE vc IN (SELECT c FROM y)", "WHERE rtrim(vc) IN (SELECT rtrim(c) FROM y)"),
        ("WHERE t IN (SELECT c FROM y)", "WHERE t IN (SELECT rtrim(c) FROM y)"),
        ("WHERE length(c) = 1", "WHERE length(rtrim(c)) = 1"),
        ("WHERE c || 'x' = 'ax'", "WHERE rtrim(c) || 'x' = 'ax'"),
        ("WHERE CASE c WHEN 'a' THEN 1 END = 1", "WHERE CASE rtrim(c) WHEN 'a' THEN 1 END = 1"),
        ("WHERE coalesce(c, 'n') = 'n'", "WHERE coalesce(rtrim(c), 'n') = 'n'"),
        (
            "WHERE u = '{A0EEBC999C0B4EF8BB6D6BB9BD380A11}'",
            "WHERE u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        ),
    ],
)
def test_a_comparison_means_what_it_means_in_postgresql(given, wanted):
    assert meant(f"SELECT id FROM x {given}") == f"SELECT id FROM x {wanted}"


@pytest.mark.parametrize(
    "where",
    [
        "WHERE c = d",
        "WHERE c LIKE 'a%'",
        "WHERE c IS NULL",
        "WHERE concat(c, 'x') = 'a'",
        "WHERE mood = 'sad'",
        "WHERE ti > '09:00:00'",
        "WHERE ip = '10.0.0.1'",
        "WHERE r = r",
        "WHERE german = 'a'",
        "WHERE t > 'a'",
        "WHERE ints = ints",
        "WHERE ints = array(1, 2)",
        "WHERE ints[0] > 1",
        "WHERE exists(ints, n -> n > 1)",
        "WHERE sort_array(ints) = array(1, 2)",
        "WHERE sort_array(uuids, false)[0] = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        "WHERE struct(ints AS v).v = array(1, 2)",
        "WHERE uuids[0] = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        "WHERE cast(nu AS decimal(20, 2)) > 2",
        "WHERE cast(iv AS string) = 'P1D'",
        "WHERE lower(german) = 'a'",
        "WHERE length(german) > 3",
        "WHERE cast(german AS string) < 'a'",
        "WHERE upper(t) < 'A'",
        "WHERE cast(t AS string) = 'a'",
        "WHERE get_json_object(j, '$.a') = 'x'",
        "ORDER BY nu",
    ],
)
def test_what_means_the_same_stays_as_it_is_written(where):
    sql = f"SELECT id, nu, iv, c, j, pair FROM x {where}"
    assert meant(sql) == sql


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("WHERE iv > '1 day'", "iv"),
        ("WHERE nu = 2", "nu"),
        ("WHERE nu + 1 > 2", "nu"),
        ("WHERE j = '{}'", "j"),
        ("WHERE mood < 'sad'", "mood"),
        ("WHERE ti > '9 am'", "ti"),
        ("WHERE ip < '10.0.0.1'", "ip"),
        ("WHERE ip = '10.0.0.1/32'", None),
        ("WHERE u = t", "u"),
        ("WHERE pair = pair", "pair"),
        ("WHERE odd = 'x'", "odd"),
        ("WHERE ci = 'x'", "ci"),
        ("WHERE upper(ci) = 'X'", "ci"),
        ("WHERE ci LIKE 'x%'", "ci"),
        ("WHERE german < 'a'", "german"),
        ("WHERE no_case = 'a'", "no_case"),
        ("WHERE nr = nr", "nr"),
        ("WHERE nus = nus", "nus"),
        ("WHERE ints < ints", "ints"),
        ("WHERE struct(ints AS v).v < array(1)", "ints"),
        ("WHERE array(ints, ints)[0] < array(1)", "ints"),
        ("WHERE size(sort_array(array(ints, ints))) = 2", "ints"),
        ("WHERE size(sort_array(nus)) = 2", "nus"),
        ("WHERE size(sort_array(moods)) = 2", "moods"),
        ("WHERE array_contains(nus, 1)", "nus"),
        ("WHERE nus[0] = 1", "nus[0]"),
        ("WHERE exists(nus, n -> n = 1)", "nus"),
        ("WHERE chars = array('a')", "chars"),
        ("WHERE struct(id, u) = struct(1, 'A')", "u"),
        ("WHERE array(c, d)[0] = 'a'", "c"),
        ("WHERE chars[0] = 'a'", "chars[0]"),
        ("WHERE nu IN (SELECT nu FROM y)", "nu"),
        ("WHERE nullif(nu, 1) IS NULL", "nu"),
        ("WHERE greatest(c, short) = 'a'", "c"),
        ("WHERE CASE nu WHEN 1 THEN 1 END = 1", "nu"),
        ("WHERE EXISTS (SELECT 1 FROM y WHERE y.nu = x.nu)", "nu"),
        ("ORDER BY nu LIMIT 1", "nu"),
        ("WHERE c = 5", "c"),
    ],
)
def test_another_meaning_is_refused_with_the_column_and_the_way_out(where, column):
    if column is None:
        assert "10.0.0.1'" in meant(f"SELECT id FROM x {where}")
        return
    with pytest.raises(ViewError, match=f'view "v": .*"{re.escape(column)}" is ') as refused:
        meant(f"SELECT id FROM x {where}")
    assert refused.value.hint.startswith("write ")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nu AS id, count(*) AS n FROM x GROUP BY nu",
        "SELECT nu AS id, count(*) AS n FROM x GROUP BY 1",
        "SELECT DISTINCT id, nu FROM x",
        "SELECT id, count(DISTINCT iv) AS n FROM x GROUP BY id",
        "SELECT id, min(nu) AS n FROM x GROUP BY id",
        "SELECT id, sum(nu) AS n FROM x GROUP BY id",
        "SELECT id, nu FROM x UNION SELECT id, nu FROM y",
        "SELECT id, nu FROM x INTERSECT SELECT id, nu FROM y",
        "SELECT id, bp FROM x UNION SELECT id, bp FROM y",
        "SELECT id, bp FROM x INTERSECT SELECT id, bp FROM y",
        "SELECT id, bp FROM x EXCEPT SELECT id, bp FROM y",
        "SELECT id, q || q AS both FROM x",
        "SELECT id, coalesce(c, t) AS v FROM x",
        "SELECT id FROM x WHERE CASE WHEN id > 2 THEN t ELSE c END = 'AB  '",
        "SELECT id, CASE WHEN id > 2 THEN c WHEN id > 1 THEN t END AS v FROM x",
        "SELECT id, max(german || '') AS m FROM x GROUP BY id",
        "SELECT id, row_number() OVER (ORDER BY concat(t, german)) AS n FROM x",
        "SELECT id FROM x WHERE substring(german, 1, 1) < 'E'",
        "WITH w AS (SELECT id, lower(german) AS z FROM x) SELECT id FROM w WHERE z > 'a'",
        "SELECT id FROM x WHERE lower(no_case) = 'a'",
        "SELECT id, count(DISTINCT no_case || '') AS n FROM x GROUP BY id",
        "SELECT x.id FROM x JOIN y ON x.no_case || '' = y.no_case || ''",
        "SELECT id, cast(t AS varchar(1)) AS v FROM x",
        "SELECT id FROM x WHERE cast(id AS char(3)) = 'a'",
        "SELECT x.id FROM x JOIN y ON x.nu = y.nu",
        "SELECT x.id FROM x JOIN y USING (nu)",
        "SELECT x.id FROM x NATURAL JOIN y",
        "SELECT id, rank() OVER (ORDER BY iv) AS n FROM x",
        "SELECT id, count(*) OVER (PARTITION BY nu) AS n FROM x",
        "SELECT id, collect_set(nu) AS n FROM x GROUP BY id",
        "SELECT id, sort_array(collect_list(struct(nu, id))) AS n FROM x GROUP BY id",
        "SELECT id, max_by(id, iv) AS n FROM x GROUP BY id",
        "WITH w AS (SELECT id, nu AS z FROM x) SELECT id FROM w WHERE z > 1",
        "SELECT id FROM (SELECT id, coalesce(nu, '1') AS z FROM x) q WHERE z = '1'",
        "SELECT bp AS id, count(*) AS n FROM x GROUP BY bp",
        "SELECT iv AS id, t FROM x",
        "SELECT id, c FROM x UNION ALL SELECT id, t FROM y",
        "SELECT id, length(c) FROM x",
    ],
)
def test_so_is_what_groups_sorts_or_joins_by_another_meaning(sql):
    with pytest.raises(ViewError):
        meant(sql)


def test_the_shown_value_of_a_char_keeps_its_blanks():
    assert meant(
        "SELECT c AS id, max(d) AS m, lag(c) OVER (ORDER BY d) AS l FROM x GROUP BY c"
    ) == (
        "SELECT c AS id, rpad(max(rtrim(d)), 10, ' ') AS m, "
        "lag(c) OVER (ORDER BY rtrim(d)) AS l FROM x GROUP BY c"
    )
    assert meant("SELECT id, coalesce(t, c) AS a, coalesce(c, 'x') AS b FROM x") == (
        "SELECT id, coalesce(t, rtrim(c)) AS a, coalesce(c, 'x') AS b FROM x"
    )


def test_a_view_inside_of_another_means_the_same_and_is_shown_as_it_is_written():
    inner = parse_sql_view("first", PATH, "-- key: id\nSELECT id, c AS z FROM x")
    outer = parse_sql_view("second", PATH, "-- key: id\nSELECT id, z FROM first WHERE z = 'a'")
    spec = with_views(outer, {"first": inner})
    found = as_meant(spec, TABLES, dict.fromkeys(TABLES, ("id",)))
    assert "WHERE trim(TRAILING ' ' FROM z) = 'a'" in (found.sql or "")
    assert found.views == ("first",)
    assert text_of(found) == text_of(spec)


def test_a_query_that_is_not_understood_is_refused_where_it_names_such_a_column():
    with pytest.raises(ViewError):
        meant("SELECT id, q.v FROM x LATERAL VIEW explode(nus) q AS v WHERE q.v > 1")


@pytest.mark.parametrize(
    ("kind", "equal", "ordered"),
    [
        (array_type(CHAR, "character(10)[]"), True, False),
        (array_type(NUMERIC, "numeric[]"), False, False),
        (array_type(column_type("float8", "double precision"), "x[]"), False, False),
        (column_type("numeric", "numeric(50,10)"), False, False),
        (column_type("varbit", "bit varying(8)"), True, True),
        (GERMAN, True, False),
        (NO_CASE, False, False),
    ],
)
def test_a_type_has_what_its_element_or_its_collation_has(kind, equal, ordered):
    found = meaning_of(kind)
    assert found is not None
    assert (found.equal, found.ordered) == (equal, ordered)


def test_a_number_that_is_carried_as_one_needs_no_look():
    assert meaning_of(column_type("numeric", "numeric(12,3)")) is None


NUMBERS = {"n": column_type("int4", "integer"), "m": column_type("numeric", "numeric(9,2)")}
OTHERS = {
    **NUMBERS,
    "dt": column_type("date", "date"),
    "ts": column_type("timestamp", "timestamp without time zone"),
    "f": column_type("bool", "boolean"),
}


def of_all(sql):
    tables = {TableName("public", name): {**COLUMNS, **OTHERS} for name in ("x", "y")}
    spec = parse_sql_view("v", PATH, f"-- key: id\n{sql}")
    return as_meant(spec, tables, dict.fromkeys(tables, ("id",)))


@pytest.mark.parametrize(
    ("sql", "said", "hint"),
    [
        ("SELECT id FROM x WHERE t = 5", '"t" is text and 5 is a number', "write '5'"),
        (
            "SELECT id FROM x WHERE n <> t",
            '"t" is text and "n" is integer, which PostgreSQL does not compare',
            "write cast(n AS string), or cast(t AS int)",
        ),
        ("SELECT id FROM x WHERE vc < m", '"m" is numeric(9,2)', "cast(vc AS decimal(9, 2))"),
        ("SELECT id FROM x WHERE n IN (1, t)", '"t" is text', "cast(n AS string)"),
        ("SELECT id FROM x WHERE dt BETWEEN '2024-01-01' AND t", '"dt" is date', "AS date)"),
        ("SELECT x.id FROM x JOIN y ON x.t = y.ts", '"ts" is timestamp', "AS timestamp_ntz)"),
        ("SELECT x.id FROM x JOIN (SELECT id, t AS n FROM y) z USING (n)", '"n"', "AS string)"),
        ("SELECT id FROM x WHERE t IN (SELECT f FROM y)", "which PostgreSQL does not compare", ""),
        ("SELECT id, coalesce(t, n) AS v FROM x", "does not convert to one type", "cast(t AS int)"),
        ("SELECT id, CASE WHEN f THEN t ELSE 0 END AS v FROM x", "to one type", "write '0'"),
        ("SELECT id, CASE n WHEN t THEN 1 END AS v FROM x", "does not compare", ""),
        ("SELECT id, if(f, dt, t) AS v FROM x", "to one type", ""),
        ("SELECT id, lag(t, 1, 0) OVER (ORDER BY id) AS v FROM x", "to one type", "write '0'"),
        ("SELECT id, t AS v FROM x UNION ALL SELECT id, n FROM y", "to one type", "AS int)"),
        (
            "SELECT id FROM (SELECT id, n, 'a' AS kind FROM x) q WHERE kind = n",
            '"kind" is text',
            "",
        ),
        ("SELECT id FROM x WHERE length(t) = t", "length(t) is a number", ""),
        ("SELECT id FROM x WHERE f = n", '"f" is boolean and "n" is integer', "IS TRUE"),
        ("SELECT id FROM x WHERE dt = 20240101", '"dt" is date and 20240101 is a number', ""),
    ],
)
def test_types_that_postgresql_does_not_compare_are_refused_with_a_cast(sql, said, hint):
    with pytest.raises(ViewError) as refused:
        of_all(sql)
    assert said in str(refused.value)
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    "where",
    [
        *("n = '5'", "m < '1.5'", "dt >= '2024-01-01'", "f = 'true'", "n = m", "dt < ts"),
        *("cast(n AS string) = t", "n = cast(t AS int)", "t IN ('5', NULL)", "f IS NOT NULL"),
        *("coalesce(n, '0') = 1", "n + 1 = m", "dt + 1 > ts", "length(t) = n", "n = year(dt)"),
        *("coalesce(t, NULL, vc) = 'a'", "if(f, n, NULL) = 0", "t = concat(n, '')"),
        "t IN (SELECT cast(n AS string) FROM y)",
    ],
)
def test_a_constant_text_takes_the_type_of_what_stands_beside_it(where):
    of_all(f"SELECT id FROM x WHERE {where}")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("numeric(50,10)", "cast(v AS decimal(38, 10)), which fails at values of more than 28"),
        ("numeric(3,-2)", "cast(v AS decimal(5, 0))"),
        ("numeric(2,5)", "cast(v AS decimal(5, 5))"),
        ("numeric(60,45)", "cast(v AS double) for its first 15 digits: decimals of the engines"),
        ("numeric", "cast(v AS decimal(38, 10)) with the digits that its values need, 38 at most"),
    ],
)
def test_a_numeric_that_is_carried_as_text_has_a_cast_that_is_possible(name, hint):
    table = TableName("public", "x")
    columns = {"id": COLUMNS["id"], "v": column_type("numeric", name)}
    spec = parse_sql_view("v", PATH, "-- key: id\nSELECT id FROM x WHERE v > 5")
    with pytest.raises(ViewError) as refused:
        as_meant(spec, {table: columns}, {table: ("id",)})
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("c IN (SELECT vc FROM y)", "rtrim(c) IN (SELECT rtrim(vc) FROM y)"),
        ("c NOT IN (SELECT vc FROM y)", "rtrim(c) NOT IN (SELECT rtrim(vc) FROM y)"),
        ("c = (SELECT vc FROM y)", "rtrim(c) = (SELECT rtrim(vc) FROM y)"),
        ("c < (SELECT vc FROM y)", "rtrim(c) < (SELECT rtrim(vc) FROM y)"),
        ("c = coalesce(vc, 'x ')", "rtrim(c) = coalesce(rtrim(vc), 'x')"),
        ("c = (SELECT t FROM y)", "rtrim(c) = (SELECT t FROM y)"),
        (
            "c IN (SELECT v2 FROM (SELECT vc AS v2 FROM y))",
            "rtrim(c) IN (SELECT rtrim(v2) FROM (SELECT vc AS v2 FROM y))",
        ),
    ],
)
def test_a_char_and_a_varchar_are_compared_without_blanks_through_queries_too(where, wanted):
    assert meant(f"SELECT id FROM x WHERE {where}") == f"SELECT id FROM x WHERE {wanted}"


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        ("(id, t) = (1, 'a')", "write (id = 1 AND t = 'a')"),
        ("(id, t) <> (1, 'a')", "write (id <> 1 OR t <> 'a')"),
        ("NOT ((id, t) = (1, 'a'))", "write (id = 1 AND t = 'a')"),
        (
            "(id, t) NOT IN ((1, 'a'), (2, 'b'))",
            "write (id = 1 AND t = 'a') OR (id = 2 AND t = 'b')",
        ),
        ("(id, t) < (1, 'a')", "compare the first fields, and the next where they are equal"),
        ("(id, t) BETWEEN (1, 'a') AND (2, 'b')", "compare the first fields"),
    ],
)
def test_rows_are_not_compared_as_one_value(where, hint):
    with pytest.raises(ViewError, match="where a field is null") as raised:
        meant(f"SELECT id FROM x WHERE {where}")
    assert hint in raised.value.hint
    if hint.startswith("write "):
        meant(f"SELECT id FROM x WHERE {raised.value.hint.removeprefix('write ')}")


@pytest.mark.parametrize("where", ["(id, t) IN (SELECT id, t FROM y)", "id IN (1, 2)", "(id) = 1"])
def test_rows_of_a_query_and_single_values_are_compared(where):
    assert where in meant(f"SELECT id FROM x WHERE {where}")


@pytest.mark.parametrize("value", ["pair IS NULL", "pair IS NOT NULL"])
def test_a_composite_value_of_nulls_is_null_to_postgresql_alone(value):
    with pytest.raises(ViewError, match="whose fields are all null") as raised:
        meant(f"SELECT id FROM x WHERE {value}")
    written = raised.value.hint.removeprefix("write ").partition(",")[0]
    assert written == "cast(pair AS string) IS NULL"
    meant(f"SELECT id FROM x WHERE {written}")


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        ('"t"', "`t`"),
        ('coalesce(vc, "T")', "coalesce(vc, 'T')"),
        ('count(*) OVER (PARTITION BY "t")', "count(*) OVER (PARTITION BY `t`)"),
        ("ltrim(t, 'a')", "trim(LEADING 'a' FROM t)"),
        ("rtrim(t, concat('a', 'b'))", "trim(TRAILING concat('a', 'b') FROM t)"),
        ("trim(t, 'a')", "trim(BOTH 'a' FROM t)"),
        ("log(id)", "ln(id) / ln(10)"),
        ("to_char(t, 'mm')", "date_format(t, 'yyyy-MM-dd HH:mm:ss')"),
        ("rtrim(array(c)[0] || '|')", "rtrim(rtrim(array(c)[0]) || '|')"),
        ("named_struct('f', c).f || '|'", "rtrim(named_struct('f', c).f) || '|'"),
        ("length(chars[0])", "length(rtrim(chars[0]))"),
        ("cast(ip AS string)", "concat(ip)"),
        ("ip || ''", "concat(ip) || ''"),
        ("ip < '::1'", "concat(ip) < '::1'"),
    ],
)
def test_what_the_languages_read_as_two_things_is_refused_with_what_is_one(value, instead):
    with pytest.raises(ViewError) as raised:
        meant(f"SELECT id, {value} AS v FROM x")
    assert raised.value.hint.startswith("write ")
    assert instead in meant(f"SELECT id, {instead} AS v FROM x")


@pytest.mark.parametrize(
    "value",
    [
        *('"EUR"', 't AS "T"', "ltrim(t)", "log(2, id)", "'1' || (id + 3)", "id + 3 || t"),
        *("trim(BOTH 'a' FROM t)", "rtrim(chars[0])", "array_join(chars, ',')"),
    ],
)
def test_what_they_read_alike_stays(value):
    assert value in meant(f"SELECT id, {value} FROM x")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("t IN (c, d)", "t IN (rtrim(c), rtrim(d))"),
        ("vc IN (c, d)", "rtrim(vc) IN (rtrim(c), rtrim(d))"),
        ("c IN (t, vc, 'a ')", "rtrim(c) IN (t, rtrim(vc), 'a')"),
        ("array(t, c)", "array(t, rtrim(c))"),
        ("lag(t, 1, c) OVER (ORDER BY id)", "lag(t, 1, rtrim(c)) OVER (ORDER BY id)"),
        ("concat_ws(c, c, t)", "concat_ws(rtrim(c), c, t)"),
    ],
)
def test_a_char_among_texts_is_compared_with_each_as_postgresql_does(value, wanted):
    assert wanted in meant(f"SELECT id, {value} AS v FROM x")


@pytest.mark.parametrize(
    "value",
    [
        *(
            "t IN (c, vc)",
            "vc IN ('a ', c)",
            "t BETWEEN c AND vc",
            "lag(c, 1, t) OVER (ORDER BY id)",
            "lead(c, 1, 'x') OVER (ORDER BY id)",
        ),
        *("CASE t WHEN c THEN 1 WHEN vc THEN 2 END", "array(c, t)", "array_contains(chars, 'a')"),
    ],
)
def test_where_its_blanks_count_beside_some_of_them_it_is_refused(value):
    with pytest.raises(ViewError, match=r"blanks|converts the texts"):
        meant(f"SELECT id, {value} AS v FROM x")


UUID = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"


@pytest.mark.parametrize(
    "sql",
    [
        *(f"SELECT id, u FROM x {word} SELECT 1, '{UUID}'" for word in
          ("UNION", "UNION ALL", "INTERSECT", "EXCEPT")),
        f"SELECT id, lag(u, 1, '{UUID}') OVER (ORDER BY id) AS v FROM x",
        f"SELECT id, lead(u, 1, '{UUID}') OVER (ORDER BY id) AS v FROM x",
        f"SELECT id, array(u, '{UUID}') AS v FROM x",
        f"SELECT id, array_contains(uuids, '{UUID}') AS v FROM x",
    ],
)  # fmt: skip
def test_a_constant_beside_a_type_is_written_as_its_values_are(sql):
    assert sql.replace(UUID, UUID.lower()) in meant(sql)
    with pytest.raises(ViewError, match="not known how"):
        meant(sql.replace(UUID, "no uuid"))


@pytest.mark.parametrize(
    ("column", "constant", "carried"),
    [
        ("ti", "12:00", "12:00:00"),
        ("ti", "9:30:05.120", "09:30:05.12"),
        ("ti", "24:00", "24:00:00"),
        ("tt", "12:00+02:00", "12:00:00+02"),
        ("tt", "12:00:00-00", "12:00:00+00"),
        ("tt", "1:00+05:30", "01:00:00+05:30"),
        ("r", "[1,5]", "[1,6)"),
        ("r", "(0,)", "[1,)"),
        ("r", "[,]", "(,)"),
        ("r", "empty", "empty"),
        ("dr", "(2024-02-28,2024-02-29]", "[2024-02-29,2024-03-01)"),
        ("lsn", "0016/b374d848", "16/B374D848"),
    ],
)
def test_a_constant_of_another_form_is_written_as_the_values_are(column, constant, carried):
    sql = "SELECT id, {} = '{}' AS v FROM x"
    assert meant(sql.format(column, constant)) == sql.format(column, carried)


@pytest.mark.parametrize(
    ("column", "constant", "advice"),
    [
        *(("ti", text, "the constant as '12:00:00'") for text in
          ("noon", "24:00:01", "12:60", "12:00+00", "12:00:00.1234567")),
        *(("tt", text, "the constant as '12:00:00+00'") for text in
          ("12:00", "12:00:00+16", "12:00 UTC")),
        *(("r", text, "the constant as '[1,5)'") for text in
          ("[5,1]", "(1,2)", "[a,b]", "[1,2147483647]", "1")),
        *(("dr", text, "the constant as '[2024-01-01,2024-02-01)'") for text in
          ("[2024-01-01,infinity]", "[9999-12-01,9999-12-31]")),
        ("lsn", "g/0", "the constant as '16/B374D848'"),
        ("u", "no uuid", "the constant as 'a0eebc99"),
        ("tr", "[2024-01-01,2024-02-01)", "it as a column of the table"),
        ("nr", "[1,2]", "it as a column of the table"),
    ],
)  # fmt: skip
def test_beside_a_constant_of_no_known_form_its_text_is_not_proposed(column, constant, advice):
    with pytest.raises(ViewError, match=r"not known how|several carried forms") as refused:
        meant(f"SELECT id, {column} = '{constant}' AS v FROM x")
    assert advice in refused.value.hint
    assert "string" not in refused.value.hint


@pytest.mark.parametrize(
    ("condition", "advice"),
    [
        ("ip < '10.0.0.1'", "it as a column of the table"),
        ("tt < '12:00:00+00'", "it as a column of the table"),
        ("mood BETWEEN 'ok' AND 'sad'", "it as a column of the table"),
        ("ti > concat('12', ':00')", "the constant as '12:00:00'"),
        ("ti IN (SELECT '12:00')", "the constant as '12:00:00'"),
        ("tr = concat('empty', '')", "it as a column of the table"),
        ("ti = concat(t, ':00')", "cast(ti AS string), which compares its text"),
        ("tt < tt", "cast(tt AS string), which compares its text"),
        ("ci = 'A'", "lower(cast(ci AS string)), and the constant in lower case"),
    ],
)
def test_a_text_is_proposed_beside_no_constant(condition, advice):
    with pytest.raises(ViewError) as refused:
        meant(f"SELECT id FROM x WHERE {condition}")
    assert advice in refused.value.hint


def test_a_constant_of_two_queries_is_a_text_and_no_uuid():
    of_texts = f"SELECT 1, '{UUID}' UNION SELECT 2, '{UUID}'"
    with pytest.raises(ViewError, match="a value of another type"):
        meant(f"SELECT id, u FROM x EXCEPT ({of_texts})")


def test_a_refusal_names_tables_as_the_view_does():
    for sql in (f"u = (SELECT '{UUID}' FROM y)", "nu IN (SELECT nu FROM y AS z)"):
        with pytest.raises(ViewError) as raised:
            meant(f"SELECT id FROM x WHERE {sql}")
        assert "captured" not in str(raised.value)


@pytest.mark.parametrize("sets", ["GROUPING SETS ((c), ())", "ROLLUP (c)", "CUBE (c, t)"])
def test_sets_of_groups_have_a_char_as_groups_have_it(sets):
    sql = f"SELECT count(*) AS id, c FROM x GROUP BY {sets}"
    assert meant(sql) == sql


@pytest.mark.parametrize("name", ["bit(3)", "bit varying(8)", "money", '"char"'])
def test_casts_that_are_not_of_the_text_are_refused(name):
    base = {"bit(3)": "bit", "bit varying(8)": "varbit", "money": "money"}.get(name, "char")
    columns = {TableName("public", "x"): {"id": COLUMNS["id"], "b": column_type(base, name)}}
    text = "-- key: id\nSELECT id, cast(b AS int) AS n FROM x"
    with pytest.raises(ViewError, match="its cast is of the value"):
        as_meant(parse_sql_view("v", PATH, text), columns, {})
    shown = text.replace("AS int", "AS string")
    as_meant(parse_sql_view("v", PATH, shown), columns, dict.fromkeys(columns, ("id",)))
