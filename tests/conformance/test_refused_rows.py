"""Rows that a search server refuses: left out where that is chosen, each told, and not too many."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from changelog.contract.base.errors import SinkError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from tests.conformance.test_forward import delta
from views.sinks.base import left_out_of, rows_of
from views.sinks.make import make_sink

pytestmark = [pytest.mark.spark, pytest.mark.services]

KEY = ("id", "part")
SCHEMA = "id int, part string, code string"
OPTIONS: Any = {"mappings": {"properties": {"code": {"type": "integer"}}}}
TOO_LONG = "x" * 600


def leaving(bench: Any, at_most: int = 3) -> Any:
    """Make a sink that may leave out some rows."""
    return make_sink(
        "search",
        view=bench.view,
        key=KEY,
        settings=dataclasses.replace(bench.settings, left_out_at_most=at_most),
        spark=bench.spark,
        options=OPTIONS,
    )


def numbered(odd: dict[int, str], count: int = 3_000) -> list[tuple[int, str, str]]:
    return [(n, "p", odd.get(n, str(n))) for n in range(count)]


def built(sink: Any, bench: Any, rows: list[Any]) -> None:
    frame = bench.spark.createDataFrame(rows, SCHEMA).repartition(3)
    sink.open(1, frame.schema)
    sink.write(frame)
    sink.seal()
    sink.publish(1)


def keys(sink: Any) -> list[tuple[int, str]]:
    """Return the keys of what a generation goes without."""
    found = [json.loads(each.key) for each in left_out_of(sink, 1)]
    return sorted((each["id"], each["part"]) for each in found)


def test_a_generation_goes_without_the_rows_that_are_refused_and_says_which(search):
    rows = [*numbered({700: "odd"}), (5, TOO_LONG, "5")]
    built(leaving(search), search, rows)
    sink = leaving(search)
    assert keys(sink) == [(5, TOO_LONG), (700, "p")]
    assert (sink.rows(1), rows_of(sink, 1)) == (2_999, 3_001)
    reasons = {each.id: each.reason for each in sink.left_out(1)}
    assert "failed to parse field [code]" in reasons['[700,"p"]']
    assert "is too long" in reasons[f'[5,"{TOO_LONG}"]']
    told = json.loads(sink.address(1).location["left_out"])
    assert min(told) == [f'[5,"{TOO_LONG}"]', json.dumps({"id": 5, "part": TOO_LONG})]
    assert len(search.served(search.view)) == 2_999


def test_more_than_may_be_left_out_fail(search):
    sink = leaving(search, at_most=3)
    with pytest.raises(SinkError, match="refuses more than 3 rows, such as"):
        built(sink, search, numbered(dict.fromkeys([1, 800, 1_600, 2_400], "odd")))
    with pytest.raises(SinkError, match="not sealed"):
        sink.publish(1)


def test_by_itself_a_refused_row_fails_and_what_may_be_done_is_said(search):
    with pytest.raises(SinkError, match="--on-refused-row quarantine"):
        built(leaving(search, at_most=0), search, numbered({7: "odd"}))


def test_a_delta_takes_what_a_refused_row_had_and_brings_it_back_later(search):
    built(leaving(search), search, numbered({3: "odd"}, 10))
    sink = leaving(search)

    def apply(sink, lsn, come, gone=()):
        shape, table = delta(search, sink, come, list(gone), schema=SCHEMA, key=KEY)
        sink.apply(1, shape, table, Position(1, Lsn(lsn), 0))

    def served():
        return sorted((row["id"], row["code"]) for row in search.served(search.view))

    apply(sink, 100, [(4, "p", "odd"), (5, "p", "55"), (6, TOO_LONG, "6")])
    assert keys(sink) == [(3, "p"), (4, "p"), (6, TOO_LONG)]
    assert served() == [(n, "55" if n == 5 else str(n)) for n in range(10) if n not in {3, 4}]
    assert (sink.rows(1), rows_of(sink, 1)) == (8, 11)
    # One too many: no reader sees anything of the delta, and the same one may come again.
    with pytest.raises(SinkError, match="refuses more than 3 rows"):
        apply(sink, 200, [(7, "p", "odd"), (8, "p", "88")])
    assert sink.position(1) == Position(1, Lsn(100), 0)
    assert (8, "8") in served()
    # What is well again is there again, what is gone is missed no more.
    apply(sink, 300, [(4, "p", "44"), (7, "p", "odd"), (8, "p", "88")], [(6, TOO_LONG, "")])
    assert keys(sink) == [(3, "p"), (7, "p")]
    others = {4: "44", 5: "55", 8: "88"}
    assert served() == [(n, others.get(n, str(n))) for n in range(10) if n not in {3, 7}]
    # Who may leave out nothing any more still says what is missing.
    strict = leaving(search, at_most=0)
    apply(strict, 400, [(9, "p", "99")])
    assert keys(strict) == [(3, "p"), (7, "p")]
    with pytest.raises(SinkError, match="--on-refused-row quarantine"):
        apply(strict, 500, [(9, "p", "odd")])
