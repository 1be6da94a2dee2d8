"""What the log says of itself shows itself, as text and in a notebook: replay.api."""

from datetime import datetime

import pyarrow as pa
import pytest

from changelog.contract.base.lsn import Lsn
from replay.api.frames import duckdb_relation, pandas_frame
from replay.api.reach import as_of_moment
from replay.api.rows import rows_of
from replay.api.sheet import Sheet


def test_html_is_escaped_and_brings_no_colours_of_its_own():
    html = Sheet("<b>", ("<i>",), [("<script>",)], ("<u>",)).html()
    assert not {"<b>", "<i>", "<script>", "<u>"} & {html[n : n + 8] for n in range(len(html))}
    assert "&lt;script&gt;" in html
    assert "color:inherit" in html
    assert "#" not in html


@pytest.mark.parametrize(
    ("moment", "asked"),
    [
        (Lsn(24), (Lsn(24), None)),
        ("0/18", (Lsn(24), None)),
        (
            datetime.fromisoformat("1970-01-01T00:00:01"),
            (None, 1_000_000),
        ),  # without a zone it is UTC
        ("1970-01-01T02:00:01+02:00", (None, 1_000_000)),
    ],
)
def test_moments_may_be_written_in_several_ways(moment, asked):
    found = as_of_moment(moment)
    assert found is not None
    assert (found.lsn, found.ts_us) == asked


EDGES = pa.table(
    {
        "day": pa.array([2**31 - 1, -(2**31), 0, None], pa.int32()).view(pa.date32()),
        "moment": pa.array([2**63 - 1, -(2**63), 0, None], pa.int64()).view(pa.timestamp("us")),
        "days": pa.array([[2**31 - 1, -(2**31)], [], None, [None]], pa.list_(pa.int32())).cast(
            pa.list_(pa.date32())
        ),
        "n": pa.array([2**63 - 1, 2**53 + 1, None, 0], pa.int64()),
    }
)


def test_infinite_days_and_moments_are_postgresqls_words_in_python():
    first, second, third, _ = rows_of(EDGES)
    assert (first["day"], second["day"]) == ("infinity", "-infinity")
    assert (first["moment"], second["moment"]) == ("infinity", "-infinity")
    assert first["days"] == ["infinity", "-infinity"]
    assert third["moment"] == datetime.fromisoformat("1970-01-01")


@pytest.mark.parametrize("rows", [EDGES, EDGES.slice(1)], ids=["whole", "from the second row"])
def test_duckdb_has_them_as_infinities_of_its_own(rows):
    found = (
        duckdb_relation(rows)
        .project("day::VARCHAR, moment::VARCHAR, days::VARCHAR, n::VARCHAR")
        .fetchall()
    )
    wanted = [
        ("infinity", "infinity", "[infinity, -infinity]", "9223372036854775807"),
        ("-infinity", "-infinity", "[]", "9007199254740993"),
        ("1970-01-01", "1970-01-01 00:00:00", None, None),
        (None, None, "[NULL]", "0"),
    ]
    assert found == wanted[-len(rows) :]


def test_pandas_rounds_nothing():
    frame = pandas_frame(EDGES)
    assert frame["n"].tolist()[:2] == [2**63 - 1, 2**53 + 1]
    assert frame["n"].isna().tolist() == [False, False, True, False]
