"""Names of the columns that a query gives, as its author wrote them."""

from __future__ import annotations

import pytest
import sqlglot

from changelog.contract.rows.relation import TableName
from views.project.output import outputs, spelled

TABLES = {
    TableName("public", "a"): ("Id", "x"),
    TableName("public", "b"): ("id", "Y"),
    TableName("shop", "c"): ("z",),
}


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT ID, a.X AS One, x two FROM a", ["ID", "One", "two"]),
        ("SELECT * FROM a", ["Id", "x"]),
        ("SELECT b.*, a.x FROM a JOIN b ON a.id = b.id", ["id", "Y", "x"]),
        ("SELECT * FROM a, b", ["Id", "x", "id", "Y"]),
        ("SELECT * FROM a JOIN b USING (ID)", ["Id", "x", "Y"]),
        ("SELECT * FROM a LEFT SEMI JOIN b ON a.id = b.id", ["Id", "x"]),
        ("SELECT * FROM shop.c AS C", ["z"]),
        ("SELECT * FROM (SELECT x AS P FROM a) AS s", ["P"]),
        ("SELECT * FROM (SELECT x, id FROM a) AS s (P, Q)", ["P", "Q"]),
        ("WITH s (P) AS (SELECT x FROM a), t AS (SELECT * FROM s) SELECT t.* FROM t", ["P"]),
        ("WITH a AS (SELECT Y FROM b) SELECT * FROM a", ["Y"]),
        ("SELECT x AS One FROM a UNION ALL SELECT Y FROM b", ["One"]),
        ("(SELECT x FROM a)", ["x"]),
        ("SELECT a.s.Field, count(*) FROM a", ["Field", ""]),
        ("SELECT json_tuple(x, 'p', 'q') AS (P, Q) FROM a", ["P", "Q"]),
        ("SELECT * FROM a RIGHT JOIN b USING (id)", None),
        ("SELECT * FROM a NATURAL JOIN b", None),
        ("SELECT * EXCEPT (x) FROM a", None),
        ("SELECT * FROM nowhere", None),
        ("SELECT * FROM a LATERAL VIEW explode(x) e AS f", None),
        ("SELECT * FROM range(3)", None),
        ("SELECT s.* FROM a", None),
        ("SELECT id, posexplode(x) FROM a", None),
        ("SELECT id, inline_outer(x) FROM a", None),
    ],
)
def test_columns_are_named_as_they_are_written(sql: str, names: list[str] | None) -> None:
    found = outputs(sqlglot.parse_one(sql, read="spark"), TABLES)
    assert (None if found is None else [each.name for each in found]) == names


def test_a_key_is_spelled_as_the_one_column_that_it_can_be() -> None:
    names = ["Id", "NAME", "name", "x"]
    assert spelled(["ID", "name", "Name", "gone"], names) == ("Id", "name", "Name", "gone")
