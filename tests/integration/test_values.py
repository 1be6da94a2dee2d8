"""Values that no type of the engines holds: refused and told, or what the settings choose."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from tests.support.captured_project import CapturedProject, captured_database, rebuild_view
from views.verify.log import tables
from views.verify.values.types import quoted

pytestmark = [pytest.mark.services, pytest.mark.spark]

TABLE = """
CREATE TABLE prices (
    id int PRIMARY KEY, amount numeric(10,3), until date, seen timestamptz, at timestamp,
    sizes int[]
);
INSERT INTO prices VALUES
    (1, 1.5, '2024-02-29', '2024-02-29 10:00:00.5+00', '2024-02-29 10:00', '{1}'),
    (2, 'NaN', 'infinity', '-infinity', 'infinity', '{{1},{2}}'),
    (3, NULL, '0044-03-15 BC', '0044-03-15 01:02:03+00 BC', '0001-12-31 23:59:59.999999 BC', NULL),
    (4, -0.001, '12024-01-01', '12024-01-01 00:00:00+00', '12024-01-01 00:00:01', '{}'),
    (5, 'NaN', '-infinity', 'infinity', '-infinity', '[2:2]={7}');
"""
PLAIN = "-- key: id\nSELECT id, amount, until, seen, at, sizes FROM prices"
YEARS = "-- key: id\nSELECT id, year(until) AS y FROM prices"
COLUMNS = ("amount", "until", "seen", "at")


@pytest.fixture
def project(stack, tmp_path):
    with captured_database(stack, tmp_path / "project", TABLE) as (found, _):
        found.view("shown.sql", PLAIN)
        yield found


def choose(project: CapturedProject, **choices: str) -> None:
    """Write what views get of some columns, in place of what was written before."""
    place = project.root / "changelog.toml"
    lines = [f'"public.prices.{name}" = "{each}"' for name, each in choices.items()]
    before = place.read_text(encoding="utf-8").partition("[rebuild.values]")[0]
    place.write_text("\n".join([before.rstrip(), "[rebuild.values]", *lines, ""]), encoding="utf-8")


def source(project: CapturedProject, expressions: str) -> list[tuple]:
    return project.query(f"SET timezone TO 'UTC'; SELECT id, {expressions} FROM prices ORDER BY id")


def served(project: CapturedProject) -> list[tuple]:
    return [tuple(row[name] for name in ("id", *COLUMNS)) for row in project.delta("shown")]


def test_a_value_without_a_form_is_refused_with_its_rows_or_takes_the_form_that_is_chosen(  # noqa: PLR0915 - one project
    project, capsys, monkeypatch
):
    def ran(*words):
        return rebuild_view(capsys, monkeypatch, project, *words)

    refused = ran("shown")
    assert refused.code == 1
    assert 'table "public.prices", column "amount" (numeric(10,3))' in refused.err
    assert "2 rows have such a value there: (2), (5)" in refused.err
    assert '"public.prices.amount" = "null" or "text"' in refused.err

    project.view("years.sql", YEARS)
    unproved = ran("years")
    assert unproved.code != 0
    assert "public.prices.until is infinite in 2 rows: (2), (5)" in unproved.err
    assert '"public.prices.until" = "null" or "text"' in unproved.err
    assert ('column "y"' in unproved.err, "public.prices.seen" in unproved.err) == (True, False)

    choose(project, **dict.fromkeys(COLUMNS, "text"), sizes="null")
    made = ran("shown", "--json")
    assert made.code == 0, made.err
    (result,) = made.results
    assert result["verified"] is True
    assert "public.prices.amount is PostgreSQL's text, as rebuild.values says" in result["warnings"]
    assert served(project) == source(project, ", ".join(f"{name}::text" for name in COLUMNS))
    lists = [row["sizes"] for row in project.delta("shown")]
    assert lists == [[1], None, None, [], None]
    compared = project.root / "views" / "cheap.sql"
    compared.write_text("-- key: id\nSELECT id FROM prices WHERE amount < 1", encoding="utf-8")
    meant = ran("cheap", "--plan")
    assert meant.code != 0
    assert "numeric(10,3)" in meant.err
    compared.unlink()

    # What serves was made by another choice, so all rows are made anew.
    choose(project, **dict.fromkeys(("amount", "sizes", "until"), "null"))
    planned = ran("shown", "--plan")
    assert "what public.prices.until cannot hold is null, as rebuild.values says" in planned.err
    made = ran("shown", "--refresh", "--json")
    assert made.code == 0, made.err
    assert made.results[0]["verified"] is True
    assert "is another than what serves" in made.results[0]["origin"]
    found = DeltaTable(str(project.warehouse / "shown")).to_pyarrow_table().sort_by("id")
    nulls = zip(*(found[name].is_null().to_pylist() for name in ("amount", "until")), strict=True)
    wanted = source(project, "coalesce(amount, 'NaN') = 'NaN', NOT isfinite(until)")
    assert [*nulls] == [row[1:] for row in wanted]
    again = ran("years", "--json")
    assert again.code == 0, again.err
    assert again.results[0]["verified"] is True

    # The twin: a verifier that does not take the choice finds other rows.
    monkeypatch.setattr(tables, "_other_form", lambda column, *_, **__: quoted(column.column))
    refuted = ran("shown")
    assert refuted.code == 3, refuted.err
    monkeypatch.undo()

    choose(project, amuont="null", id="text")
    unknown = ran("shown", "years", "--plan")
    assert unknown.code == 2, unknown.err
    told = 'rebuild.values."public.prices.amuont": no captured table has such a column'
    assert unknown.err.count(told) == 1
    assert unknown.err.count("all values of public.prices.id (integer) have a form") == 1
