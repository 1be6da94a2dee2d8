"""How rebuilds grow, as `--history` shows it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from views.generations.history import FAILED, SEALED, HistoryRow
from views.rebuild.result.trends import MOST, sparkline, trends

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def row(number: int, seconds: float, records: int = 1_000, **more: object) -> HistoryRow:
    told = {"view": "v", "state": SEALED, "origin": "start", "rows": 10, **more}
    return HistoryRow(
        generation=number, at=FIRST + timedelta(days=number), records_read=records,
        seconds={"total": seconds}, **told,  # type: ignore[arg-type]
    )  # fmt: skip


def test_time_that_grows_with_the_data_is_no_warning() -> None:
    (trend,) = trends([row(n, 1.0 * n, records=1_000 * n) for n in range(1, 10)])
    assert trend.growth == pytest.approx(1.0)
    assert "warning" not in trend.line()


def test_time_that_outgrows_the_data_is_told() -> None:
    (trend,) = trends([row(n, 1.0 if n < 7 else 4.0) for n in range(1, 10)])
    assert trend.outgrows
    assert "warning: 4.0 times the time for a record" in trend.line()


def test_refreshes_failures_and_single_rebuilds_have_no_trend() -> None:
    rows = [row(1, 9), row(2, 1, origin="refresh: 3 changed rows merged"), row(3, 1, state=FAILED)]
    assert trends(rows) == []
    assert trends([*rows, row(1, 1, view="w"), row(2, 1, view="w")])[0].view == "w"


def test_few_rebuilds_are_shown_and_not_judged() -> None:
    (trend,) = trends([row(1, 1.0), row(2, 50.0)])
    assert trend.growth is None
    assert trend.line() == "v: rows ██ 10, seconds ▁█ 50.0"


@given(st.lists(st.floats(0, 1e9), max_size=MOST))
def test_a_chart_has_a_bar_for_each_value(values: list[float]) -> None:
    found = sparkline(values)
    assert len(found) == len(values)
    ranks = ["▁▂▃▄▅▆▇█".index(bar) for bar in found]
    pairs = sorted(zip(values, ranks, strict=True))
    assert [rank for _, rank in pairs] == sorted(ranks)
