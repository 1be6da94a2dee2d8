"""SQL views: header, tables, refusals, and the text that Spark runs."""

from pathlib import Path

import pytest

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from views.project.spec import SqlSource, ViewSpec
from views.project.sql import parse_sql_view, rewritten, sql_source

HEAD = "-- key: id\n"


def parse(text: str) -> ViewSpec:
    return parse_sql_view("v", Path("views/v.sql"), text)


def refused(text: str) -> str:
    with pytest.raises(ViewError) as error:
        parse(text)
    return str(error.value)


def spark_text(text: str) -> str:
    source = parse(text).source
    assert isinstance(source, SqlSource)
    return rewritten(source, {f: f"T_{f.table.table}" for f in source.references})


def test_names_in_double_quotes_are_names_to_spark_too() -> None:
    text = '''-- key: SEGMENT
SELECT T.id AS "SEGMENT", 'a "text"' AS b FROM "things" AS "T"'''
    assert (
        spark_text(text)
        == """-- key: SEGMENT
SELECT T.id AS `SEGMENT`, 'a "text"' AS b FROM `T_things` AS `T`"""
    )
    with pytest.raises(ViewError, match="'x' is a text") as raised:
        parse_sql_view("v", Path("v.sql"), "-- key: id\nSELECT id AS 'x' FROM things")
    assert raised.value.hint == 'write it "x"'


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("'O''Brien'", r"'O\'Brien'"),
        ("''''", r"'\''"),
        ('"x""y"', r'"x\"y"'),
        (r"'q\\''r'", r"'q\\\'r'"),
        ("'p' 'q'", "'p' 'q'"),
        (r"'p\'q'", r"'p\'q'"),
        ('1 AS "n""m"', '1 AS `n"m`'),
    ],
)
def test_a_doubled_quote_in_a_text_is_written_as_every_spark_reads_it(written, read) -> None:
    """Spark 4.0 puts `'O''Brien'` together as OBrien."""
    assert spark_text(f"{HEAD}SELECT id, {written} FROM t") == (
        f"{HEAD}SELECT id, {read} FROM `T_t` AS `t`"
    )


def test_a_header_gives_key_sinks_and_description() -> None:
    spec = parse(
        "-- Flights by day.\n-- key: a, b\n--sinks: delta, search\n\n-- Description: All: of them\n"
        "SELECT a, b FROM flights -- key: not a header\n"
    )
    assert spec.key == ("a", "b")
    assert spec.sinks == ("delta", "search")
    assert spec.description == "All: of them"
    assert spec.kind == "sql"
    assert spec.sql is not None
    assert spec.sql.startswith("-- Flights")


def test_a_view_without_sinks_is_served_by_delta() -> None:
    assert parse(HEAD + "SELECT id FROM t").sinks == ("delta",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT id FROM t", "does not say what its key is"),
        ("-- key:\nSELECT id FROM t", "does not say what its key is"),
        ("-- key: a, a\nSELECT a FROM t", "names 'a' twice in its key"),
        ("-- key: a,\nSELECT a FROM t", "'' cannot be in its key"),
        ("-- key: a\n-- key: b\nSELECT a FROM t", 'two headers "key"'),
        ("-- keys: a\nSELECT a FROM t", 'did you mean "-- key: …"?'),
        (HEAD + "-- sink: delta\nSELECT id FROM t", 'did you mean "-- sinks: …"?'),
    ],
)
def test_an_unusable_header_is_refused(text: str, words: str) -> None:
    assert words in refused(text)


def test_tables_are_found_wherever_a_query_reads() -> None:
    spec = parse(
        HEAD
        + """WITH c AS (SELECT * FROM sales.orders)
        SELECT id FROM flights f JOIN c ON true JOIN `odd name`.`t``x` ON true, range(3)
        WHERE EXISTS (SELECT 1 FROM public.airlines) AND id IN (SELECT id FROM planes)
        UNION ALL SELECT id FROM (SELECT * FROM flights)"""
    )
    assert set(spec.tables) == {
        TableName("sales", "orders"),
        TableName("public", "flights"),
        TableName("odd name", "t`x"),
        TableName("public", "airlines"),
        TableName("public", "planes"),
    }
    assert len(spec.tables) == 5


def test_a_with_clause_hides_a_table_only_where_it_is_visible() -> None:
    shadowing = "WITH a AS (SELECT id FROM a) SELECT id FROM a"
    assert spark_text(HEAD + shadowing) == (
        HEAD + "WITH a AS (SELECT id FROM `T_a` AS `a`) SELECT id FROM a"
    )
    later = "WITH x AS (SELECT id FROM y), y AS (SELECT id FROM x) SELECT * FROM y"
    assert [t.table for t in parse(HEAD + later).tables] == ["y"]
    nested = "SELECT id FROM (WITH b AS (SELECT id FROM t) SELECT id FROM b) JOIN b USING (id)"
    assert [t.table for t in parse(HEAD + nested).tables] == ["t", "b"]
    schema = "WITH b AS (SELECT id FROM t) SELECT id FROM public.b"
    assert [t.table for t in parse(HEAD + schema).tables] == ["t", "b"]


def test_a_recursive_query_names_itself() -> None:
    text = (
        "WITH RECURSIVE r AS (SELECT id FROM t UNION ALL SELECT id + 1 FROM r WHERE id < 5)"
        " SELECT id FROM r"
    )
    assert [t.table for t in parse(HEAD + text).tables] == ["t"]


def test_only_the_names_of_tables_change_in_the_text() -> None:
    text = (
        "-- key: id\n-- été: ü\nSELECT  public.flights.id,'public.flights' ,s.x.y,\n"
        "  flights.b -- public.flights\nFROM public . flights JOIN sales.orders AS s /* x */ ;"
    )
    assert spark_text(text) == (
        "-- key: id\n-- été: ü\nSELECT  flights.id,'public.flights' ,s.x.y,\n"
        "  flights.b -- public.flights\n"
        "FROM `T_flights` AS `flights` JOIN `T_orders` AS s /* x */ ;"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT id FROM t WHERE\n", "v.sql:2:22: the SQL does not parse"),
        ("SELECT id,\nFROM\nWHERE (", "the SQL does not parse"),
        ("SELECT id FROM\n  'abc", "v.sql:3:3: the SQL does not parse: a quote or a comment"),
        ("/* never closed", "the SQL does not parse: a quote or a comment"),
        ("SELECT id FROM t; SELECT 1", "holds 2 statements"),
        ("", "holds 0 statements"),
        ("DROP TABLE t", "v.sql:2:1: 'DROP' does not begin a query"),
        ("INSERT INTO x SELECT id FROM t", "'INSERT' does not begin a query"),
        ("SELEC id", "'SELEC' does not begin a query"),
        ("SELECT 1 AS id", "names no table"),
        ("SELECT id FROM a.b.c", 'names "a.b.c"'),
    ],
)
def test_what_is_not_one_query_is_refused_with_its_place(text: str, words: str) -> None:
    assert words in refused(HEAD + text)


@pytest.mark.parametrize(
    ("condition", "is_postgres"), [("a ~ 'x'", True), ("a && b", True), ("a a a", False)]
)
def test_a_query_of_postgresql_that_spark_cannot_read_is_called_one(
    condition: str, is_postgres: bool
) -> None:
    with pytest.raises(ViewError, match="does not parse") as refusal:
        parse(f"{HEAD}SELECT id FROM t WHERE {condition}")
    assert ("it is PostgreSQL's SQL" in refusal.value.hint) == is_postgres


def test_reading_a_file_by_its_path_is_a_table_that_nobody_captures() -> None:
    assert parse(HEAD + "SELECT id FROM parquet.`/etc/x`").tables == (
        TableName("parquet", "/etc/x"),
    )


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("rand()", "v.sql:2: rand() is random"),
        ("random()", "is random"),
        ("uuid()", "uuid() is random"),
        ("shuffle(a)", "is random"),
        ("now()", "now() depends on the clock"),
        ("current_timestamp", "depends on the clock"),
        ("current_date()", "depends on the clock"),
        ("curdate()", "depends on the clock"),
        ("unix_timestamp()", "depends on the clock"),
        ("monotonically_increasing_id()", "depends on where and how"),
        ("input_file_name()", "depends on where and how"),
        ("current_user()", "depends on where and how"),
        ("java_method('java.lang.System', 'exit')", "calls Java"),
        ("system.builtin.reflect('java.lang.System', 'getenv', 'HOME')", "calls Java"),
        ("`reflect`('java.lang.System', 'getenv', 'HOME')", "calls Java"),
        ("IDENTIFIER('a')", "takes a name from a text"),
        ("first(a)", "first() takes a row that no order determines"),
        ("any_value(a)", "takes a row"),
        ("last(a)", "takes a row"),
        ("first_value(a) OVER (PARTITION BY b)", "takes a row"),
    ],
)
def test_what_cannot_come_out_the_same_twice_is_refused(expression: str, words: str) -> None:
    message = refused(f"{HEAD}SELECT id, {expression} AS x FROM t")
    assert words in message
    assert "cannot be proved" in message


@pytest.mark.parametrize(
    "query",
    [
        "SELECT TRANSFORM (id) USING 'cat /etc/passwd' AS (id, a) FROM t",
        "SELECT u.id FROM (FROM t SELECT TRANSFORM (id) USING 'sh' AS (id INT)) AS u",
    ],
)
def test_a_query_that_runs_a_program_is_refused(query: str) -> None:
    assert "TRANSFORM … USING runs a program" in refused(f"{HEAD}{query}")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT MAP id USING 'cat' AS id FROM t",
        "FROM t MAP id USING 'cat' AS id",
        "FROM t REDUCE id USING 'cat' AS id",
    ],
)
def test_no_other_form_of_a_program_parses(query: str) -> None:
    refused(f"{HEAD}{query}")


@pytest.mark.parametrize(
    "function",
    [
        "IDENTIFIER('text.`/etc/hostname`')",
        "python_worker_logs()",
        "system.builtin.sql_keywords()",
        "read_csv('/etc/passwd')",
        "read_files('/etc/passwd')",
    ],
)
def test_a_table_function_that_reads_something_is_refused(function: str) -> None:
    name = function.rpartition("(")[0].rpartition(".")[2] if "builtin" in function else function
    message = refused(f"{HEAD}SELECT t.id FROM t, {function} AS f")
    assert name.partition("(")[0].lower() in message
    assert "range" in message or "takes a name" in message


@pytest.mark.parametrize("function", ["range(3)", "explode(array(1))", "stack(2, 1, 2)"])
def test_a_table_function_that_computes_is_no_table(function: str) -> None:
    assert parse(f"{HEAD}SELECT t.id FROM t, {function} AS f").tables == (TableName("public", "t"),)


def test_rows_taken_without_an_order_are_refused() -> None:
    assert "LIMIT without ORDER BY" in refused(HEAD + "SELECT id FROM t LIMIT 5")
    assert "v.sql:2" in refused(HEAD + "SELECT id FROM t TABLESAMPLE (5 ROWS)")
    assert "LIMIT" in refused(HEAD + "SELECT id FROM (SELECT id FROM t LIMIT 5) ORDER BY id")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM t ORDER BY id LIMIT 5",
        "SELECT id, first_value(a) OVER (PARTITION BY b ORDER BY c) FROM t",
        "SELECT id, last(a) IGNORE NULLS OVER (ORDER BY c) FROM t",
        "SELECT id, unix_timestamp(a), to_date(b), date_add(c, 1) FROM t",
        "SELECT max(id) AS id, count(*) FROM t",
    ],
)
def test_what_is_determined_is_allowed(query: str) -> None:
    assert parse(HEAD + query).tables == (TableName("public", "t"),)


def test_a_hint_names_no_table() -> None:
    text = "SELECT /*+ BROADCAST(o) */ o.id FROM orders AS o"
    found = sql_source(Path("v.sql"), text)
    assert [each.table.table for each in found.references] == ["orders"]
    assert found.text == text
