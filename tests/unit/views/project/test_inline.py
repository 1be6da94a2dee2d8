"""Views that read views: found, put in place, and refused where a name would change its meaning."""

from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from views.project.catalog import Catalog
from views.project.definition import text_of
from views.project.lineage import Untraceable, trace
from views.project.spec import SqlSource, ViewSpec, check_captured

ORDERS, LINES = TableName("public", "orders"), TableName("sales", "lines")
PER = """-- key: customer
-- description: A header.
SELECT customer, sum(n) AS n -- of lines
FROM orders JOIN sales.lines USING (id) GROUP BY customer -- the end
;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "views").mkdir()
    return tmp_path


def loaded(folder: Path, name: str, **views: str) -> ViewSpec:
    for each, sql in views.items():
        text = sql if sql.startswith("--") else f"-- key: id\n{sql}"
        (folder / "views" / f"{each}.sql").write_text(text, encoding="utf-8")
    return Catalog.of(folder).load(name)


def refused(folder: Path, name: str, **views: str) -> str:
    with pytest.raises(ViewError) as error:
        loaded(folder, name, **views)
    assert error.value.exit_code == 2
    return str(error.value)


def source(spec: ViewSpec) -> SqlSource:
    assert isinstance(spec.source, SqlSource)
    return spec.source


def test_a_view_has_the_tables_of_the_views_that_it_names(folder: Path) -> None:
    spec = loaded(folder, "top", per=PER, top="SELECT customer AS id, n FROM per WHERE n > 1")
    assert spec.tables == (ORDERS, LINES)
    assert spec.views == ("per",)
    assert spec.sql == (
        "-- key: id\nSELECT customer AS id, n FROM (\nSELECT customer, sum(n) AS n -- of lines\n"
        "FROM orders JOIN sales.lines USING (id) GROUP BY customer\n) AS `per` WHERE n > 1"
    )


def test_views_may_be_several_deep_and_named_more_than_once(folder: Path) -> None:
    spec = loaded(
        folder,
        "c",
        a="SELECT id FROM orders",
        b="SELECT a.id FROM a JOIN sales.lines AS l ON l.id = a.id",
        c="WITH b AS (SELECT * FROM b) SELECT x.id FROM b JOIN a AS x USING (id) JOIN a USING (id)",
    )
    assert spec.views == ("b", "a")
    assert list(source(spec).tables()) == [ORDERS, LINES, ORDERS, ORDERS]


@pytest.mark.parametrize(
    "outer",
    [
        "SELECT id FROM a",
        "SELECT x.id FROM a AS x LEFT JOIN a ON a.id = x.id",
        "WITH w AS (SELECT id FROM a) SELECT id FROM w UNION ALL SELECT id FROM `a`",
        "SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM a WHERE a.id = orders.id)",
        "SELECT id FROM a AS x (id) WHERE id IN (SELECT id FROM a)",
        "SELECT 'FROM a', id /* FROM a */ FROM a -- FROM a",
    ],
)
def test_the_whole_is_what_sqlglot_makes_of_the_parts(folder: Path, outer: str) -> None:
    inner = "WITH o AS (SELECT * FROM orders) SELECT id, 'ä;' AS `x``y` FROM o ORDER BY `x``y`;"
    spec = loaded(folder, "v", a=inner, v=outer)
    tree = sqlglot.parse_one(outer, read="spark")
    query = sqlglot.parse_one(inner, read="spark")
    for table in list(tree.find_all(exp.Table)):
        if table.name == "a":
            assert isinstance(query, exp.Query)
            alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier("a"))
            table.replace(exp.Subquery(this=query.copy(), alias=alias.copy()))
    texts = [
        found.sql("spark", comments=False, identify=True, normalize_functions="upper")
        for found in (tree, sqlglot.parse_one(spec.sql or "", read="spark"))
    ]
    assert texts[0] == texts[1]


def test_a_view_that_names_itself_means_the_table(folder: Path) -> None:
    spec = loaded(folder, "orders", orders="SELECT id FROM orders")
    assert (spec.views, spec.tables) == ((), (ORDERS,))


def test_a_schema_makes_it_a_table(folder: Path) -> None:
    spec = loaded(folder, "v", orders="SELECT id FROM t", v="SELECT id FROM public.orders")
    assert (spec.views, spec.tables) == ((), (ORDERS,))


def test_a_circle_is_named(folder: Path) -> None:
    views = {"a": "SELECT id FROM b", "b": "SELECT id FROM c", "c": "SELECT id FROM b, t"}
    assert "circle: b reads c reads b" in refused(folder, "a", **views)
    assert "circle: c reads b reads c" in refused(folder, "c", **views)


def test_a_view_behind_that_cannot_be_used_is_named(folder: Path) -> None:
    assert "a.sql:2" in refused(folder, "b", a="SELECT FROM WHERE", b="SELECT id FROM a")


def test_a_view_in_python_cannot_be_read_by_sql(folder: Path) -> None:
    text = "from views import view\n\n@view(key='id')\ndef p(t):\n    return t\n"
    (folder / "views" / "p.py").write_text(text, encoding="utf-8")
    assert "which is a function in Python" in refused(folder, "v", v="SELECT id FROM p")


def test_a_with_clause_that_would_hide_a_table_of_the_other_view_is_refused(folder: Path) -> None:
    outer = "WITH orders AS (SELECT * FROM t) SELECT id FROM a JOIN orders USING (id)"
    said = refused(folder, "v", a="SELECT id FROM orders", v=outer)
    assert "by the name of what they read: orders" in said


def test_a_name_of_both_a_view_and_a_table_is_refused(folder: Path) -> None:
    spec = loaded(folder, "v", orders="SELECT id FROM t", v="SELECT id FROM orders")
    check_captured(spec, [TableName("public", "t")])
    for captured, excluded in ([ORDERS], {}), ([], {ORDERS: "why"}):
        with pytest.raises(ViewError, match="a view of the project and a table") as error:
            check_captured(spec, [TableName("public", "t"), *captured], excluded)
        assert "public.orders" in str(error.value)


def test_what_a_view_behind_says_is_part_of_the_definition(folder: Path) -> None:
    views = {"a": "SELECT id FROM orders", "v": "SELECT id FROM a"}
    before = text_of(loaded(folder, "v", **views))
    after = text_of(loaded(folder, "v", **{**views, "a": "SELECT id FROM orders WHERE id > 1"}))
    assert before != after


def test_a_refresh_computes_it_whole_and_says_why(folder: Path) -> None:
    spec = loaded(folder, "v", a="SELECT id FROM orders", v="SELECT id FROM a")
    found = trace(source(spec), ["id"], {ORDERS: ["id"]}, {ORDERS: ["id"]})
    assert found == Untraceable("it reads the view a")
