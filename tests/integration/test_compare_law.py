"""`changelog verify --target` finds the rows that differ for PostgreSQL, and no others."""

from __future__ import annotations

import json
import string
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from changelog.compare import postgres_texts, texts
from changelog.compare.address import parse_target
from changelog.compare.command import open_target
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.forms import TypeFamily
from changelog.compare.postgres import ComparedRelation, PostgresSide
from tests.support.copies import COLUMNS, KINDS, Source


def json_of(value):
    return json.dumps(value, ensure_ascii=False)


texts_of_all = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
near = st.text(" aä\u0308b\"\\',(){}\t\n", max_size=4)
words = texts_of_all | near
numbers = st.integers(-(10**19), 10**19).map(lambda units: Decimal(units).scaleb(-4))
wide = st.decimals(allow_nan=False, allow_infinity=False, places=None).filter(
    lambda number: -60 < number.adjusted() < 60 and len(number.as_tuple().digits) < 60
)
zeros = st.sampled_from(["", "0", "000"])
leaves = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | words
json_texts = st.recursive(
    leaves.map(json_of) | wide.map(lambda number: format(number, "f")),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(words.map(json_of), inner, max_size=3).map(
            lambda items: "{" + ",".join(f"{name}: {value}" for name, value in items.items()) + "}"
        )
    ),
    max_leaves=6,
)


VALUES = {
    "n": numbers,
    "big": st.sampled_from(["NaN", "Infinity", "-Infinity"])
    | st.builds(
        lambda number, zeros: format(number, "f") + (zeros if "." in format(number, "f") else ""),
        wide,
        zeros,
    ),
    "f": st.floats(),
    "r": st.floats(width=32),
    "t": words,
    "v": words,
    "c": st.text(string.ascii_letters + " é", max_size=5),
    "b": st.booleans(),
    "y": st.binary(max_size=6),
    "u": st.uuids(),
    "d": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "ti": st.times(time(0), time(23, 59, 59, 999999)),
    "ts": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001
    "tz": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(  # noqa: DTZ001
        lambda moment: moment.replace(tzinfo=UTC)
    ),
    "j": json_texts,
    "ia": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=3),
    "ta": st.lists(st.none() | words, max_size=3),
}
rows = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


@st.composite
def changed_rows(draw):
    """Return rows of a source, and of a copy that has another value in some of them."""
    source = draw(st.lists(rows, min_size=1, max_size=8))
    copy = []
    for row in source:
        column = draw(st.sampled_from([*VALUES]))
        is_same = draw(st.booleans())
        copy.append(row if is_same else {**row, column: draw(st.none() | VALUES[column])})
    return tuple([{"id": n, **row} for n, row in enumerate(table)] for table in (source, copy))


def distinct(column):
    """Return the condition that two values differ: floats by their bits, all else by value."""
    kind = COLUMNS[column][0]
    sent = {"double precision": "float8send(%s)", "real": "float4send(%s)"}.get(kind, "%s")
    texts = ' COLLATE "C"' if kind in {"text", "varchar(40)"} else ""
    own, other = (sent % f"{table}.{column}" for table in ("e", "j"))
    return f"({own}){texts} IS DISTINCT FROM ({other}){texts}"


JUDGED = " OR ".join(map(distinct, VALUES))


@pytest.fixture(params=[*KINDS])
def world(request, dsn, tmp_path):
    source, judge = Source(dsn), Source(dsn, "judge")
    copy = KINDS[request.param](dsn, tmp_path)
    relation = ComparedRelation(table=source.name)

    def differing(rows, copied):
        """Return the keys that differ for a comparison, and the keys that do for PostgreSQL."""
        source.fill(rows)
        judge.fill(copied)
        copy.fill(copied)
        with (
            closing(PostgresSide(dsn, relation, of="source")) as own,
            closing(open_target(parse_target(copy.target), source.name, Path())) as other,
        ):
            report = compare(own, other, CompareRequest(settle_s=0.0))
        answer = source.execute(f"SELECT e.id FROM every e JOIN judge j USING (id) WHERE {JUDGED}")
        return {int(key[0] or 0) for key in report.refuted}, {key for (key,) in answer}

    return differing


_LAW = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


@_LAW
@given(changed_rows())
def test_the_rows_that_differ_are_those_that_differ_for_postgresql(world, tables):
    ours, theirs = world(*tables)
    assert ours == theirs


def test_twin_documents_by_their_texts_and_numbers_by_a_part(world, monkeypatch):
    """As if the text of a document were its value, and digests were of rounded numbers."""
    rows = [{"id": id_, **dict.fromkeys(VALUES)} for id_ in (1, 2)]
    copied = [{**rows[0], "j": "[1.00]"}, {**rows[1], "n": Decimal("1.0002")}]
    rows = [{**rows[0], "j": "[1.0]"}, {**rows[1], "n": Decimal("1.0001")}]
    assert world(rows, copied) == ({2}, {2})
    monkeypatch.setattr(texts, "_json", lambda text: text)
    assert world(rows, copied) == ({1, 2}, {2})
    monkeypatch.setitem(postgres_texts._SENT, TypeFamily.NUMERIC, "round({0}, 3)")
    monkeypatch.setitem(postgres_texts._SENT, TypeFamily.JSON, "NULL::jsonb")
    ours, theirs = world(rows, copied)
    assert ours in ({1, 2}, set()), "one of PostgreSQL's digests alone is of what it sends"
    assert theirs == {2}
