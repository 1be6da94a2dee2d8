"""Laws of the log contract: what is written is what is read, for every type of the map."""

from __future__ import annotations

import math
import struct
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from changelog.contract.base.errors import ChangelogError, CorruptRecordError
from changelog.contract.base.headers import Op, decode_headers, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.base.secret import redacted
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.partition import murmur2, partition_of
from changelog.contract.log.topic import (
    TopicSettings,
    ddl_topic,
    frontier_topic,
    messages_topic,
    schema_topic,
    topic_name,
    topic_names,
)
from changelog.contract.rows.codec import FRAME_BYTES, frame, unframe
from changelog.contract.rows.relation import Column, Relation, TableName
from changelog.contract.rows.schema import field_names, key_schema, read_schema, value_schema
from changelog.contract.rows.text import (
    days_from_civil,
    days_of,
    encode_long,
    micros_of,
    parse_array,
)
from changelog.contract.rows.types import Kind, TypType, array_type, column_type
from tests.support.builders import (
    BIGINT,
    INTEGER,
    TEXT,
    TEXTS,
    decimal_type,
    key_round_trip,
    round_trip,
)
from tests.support.source_texts import decimals

lsns = st.integers(0, 2**64 - 1).map(Lsn)
positions = st.builds(Position, st.integers(0, 2**32 - 1), lsns, st.integers(0, 2**64 - 1))
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
tables = st.builds(TableName, st.one_of(st.just("public"), names), names)
topics = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
# PostgreSQL's text never holds a zero byte.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


# --- values ---------------------------------------------------------------------------------


@given(st.booleans())
def test_a_boolean_is_read_as_written(value: bool) -> None:
    kind = column_type("bool", "boolean")
    assert round_trip(kind, b"t" if value else b"f") is value


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
@example(-(2**31), -(2**63))
@example(2**31 - 1, 2**63 - 1)
def test_integers_are_read_as_written(narrow: int, wide: int) -> None:
    assert round_trip(INTEGER, str(narrow).encode()) == narrow
    assert round_trip(BIGINT, str(wide).encode()) == wide
    assert key_round_trip(BIGINT, str(wide).encode()) == wide


@given(decimals())
@example((38, 0, Decimal(10**38 - 1)))
@example((38, 38, Decimal((1, (9,) * 38, -38))))
@example((3, 0, Decimal(-128)))
@example((3, 0, Decimal(128)))
def test_a_numeric_with_precision_is_read_as_written(case: tuple[int, int, Decimal]) -> None:
    precision, scale, value = case
    kind = decimal_type(precision, scale)
    assert kind.kind is Kind.DECIMAL
    for read in (
        round_trip(kind, f"{value:f}".encode()),
        key_round_trip(kind, f"{value:f}".encode()),
    ):
        assert read == value
        assert -read.as_tuple().exponent == scale


@given(st.floats(allow_nan=False))
def test_a_double_keeps_its_bits(value: float) -> None:
    text = repr(value).replace("inf", "Infinity").encode()
    read = round_trip(column_type("float8", "double precision"), text)
    assert struct.pack("<d", read) == struct.pack("<d", value)


def _as_float(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


@given(st.floats(width=32, allow_nan=False))
@example(_as_float(0x15AE43FD))  # 7.038531e-26: the double between rounds to the other side
def test_a_real_keeps_its_bits(value: float) -> None:
    text = str(np.float32(value)).replace("inf", "Infinity").encode()
    read = round_trip(column_type("float4", "real"), text)
    assert struct.pack("<f", read) == struct.pack("<f", value)


@given(st.decimals(min_value="-3e38", max_value="3e38", allow_nan=False), st.integers(-44, 0))
@example(Decimal("7.038531"), -26)
@example(Decimal("7.0064923216240853546186479164495"), -46)  # below half the least subnormal
@example(Decimal("7.0064923216240853546186479164496"), -46)  # above it
def test_a_real_is_the_float_nearest_to_its_text(digits: Decimal, exponent: int) -> None:
    text = f"{digits}e{exponent}" if "E" not in f"{digits}" else f"{digits}"
    read = round_trip(column_type("float4", "real"), text.encode())
    exact = Fraction(Decimal(text))
    number = np.float32(read)
    for side in (np.float32(np.inf), np.float32(-np.inf)):
        neighbour = float(np.nextafter(number, side))
        if math.isfinite(neighbour):
            assert abs(exact - Fraction(read)) <= abs(exact - Fraction(neighbour))


@given(st.binary(max_size=60))
def test_bytea_is_read_as_written(value: bytes) -> None:
    kind = column_type("bytea", "bytea")
    assert round_trip(kind, b"\\x" + value.hex().encode()) == value


@given(texts)
def test_text_is_read_as_written(value: str) -> None:
    assert round_trip(TEXT, value.encode()) == value
    assert key_round_trip(TEXT, value.encode()) == value


@given(st.uuids())
def test_a_uuid_is_read_as_written(value: uuid.UUID) -> None:
    assert round_trip(column_type("uuid", "uuid"), str(value).encode()) == value


def _date_text(year: int, month: int, day: int) -> str:
    """Write a date as PostgreSQL does under `datestyle` ISO; the year 0 is 1 BC."""
    shown = year if year > 0 else 1 - year
    return f"{shown:04d}-{month:02d}-{day:02d}" + ("" if year > 0 else " BC")


def _julian_days(year: int, month: int, day: int) -> int:
    """Count days since 1970 by the other well-known formula, Fliegel and Van Flandern's."""
    shift = (14 - month) // 12
    years = year + 4800 - shift
    julian = day + (153 * (month + 12 * shift - 3) + 2) // 5 + 365 * years
    return julian + years // 4 - years // 100 + years // 400 - 32_045 - 2_440_588


dates = st.tuples(st.integers(-4712, 5_874_897), st.integers(1, 12), st.integers(1, 28))


@given(dates)
@example((0, 2, 29))
@example((-4712, 1, 1))
@example((5_874_897, 12, 31))
@example((10_000, 1, 1))
def test_dates_of_any_year_count_their_days(day: tuple[int, int, int]) -> None:
    kind = column_type("date", "date")
    read = round_trip(kind, _date_text(*day).encode(), physical=True)
    assert read == _julian_days(*day) == days_from_civil(*day)


@given(st.dates())
def test_a_date_of_the_common_years_is_read_as_written(value: date) -> None:
    assert round_trip(column_type("date", "date"), value.isoformat().encode()) == value


@given(st.datetimes(), st.booleans())
def test_a_timestamp_of_the_common_years_is_read_as_written(moment: datetime, zoned: bool) -> None:
    text = f"{moment.date().isoformat()} {moment.time():%H:%M:%S}"
    if moment.microsecond:
        text += f".{moment.microsecond:06d}".rstrip("0")
    if zoned:
        kind, text = column_type("timestamptz", "timestamp with time zone"), text + "+00"
        expected = moment.replace(tzinfo=UTC)
    else:
        kind, expected = column_type("timestamp", "timestamp without time zone"), moment
    assert round_trip(kind, text.encode()) == expected


@given(
    st.tuples(st.integers(-4712, 294_246), st.integers(1, 12), st.integers(1, 28)),
    st.integers(0, 86_400_000_000 - 1),
    st.booleans(),
)
def test_a_timestamp_of_any_year_counts_its_microseconds(
    day: tuple[int, int, int], micros: int, zoned: bool
) -> None:
    days, _, era = _date_text(*day).partition(" ")
    clock = str(timedelta(microseconds=micros)).rjust(8, "0")
    if micros % 1_000_000 == 0:
        clock = clock[:8]
    else:
        clock = f"{timedelta(seconds=micros // 1_000_000)!s:0>8}.{micros % 1_000_000:06d}"
        clock = clock.rstrip("0")
    text = f"{days} {clock}" + ("+00" if zoned else "") + (f" {era}" if era else "")
    assert micros_of(text.encode()) == _julian_days(*day) * 86_400_000_000 + micros


def _quoted(item: str | None) -> str:
    if item is None:
        return "NULL"
    plain = item and item.upper() != "NULL" and not set(item) & set('{}",\\ \t\n\r\v\f')
    return item if plain else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'


array_items = st.lists(
    st.one_of(
        st.none(),
        texts,
        st.sampled_from(["NULL", "null", "", '"', "\\", "a,b", "{}", " ", 'x"y\\z', "é"]),
    ),
    max_size=6,
)


@given(array_items)
@example([""])
@example([None])
@example(["NULL", None, 'a"\\,{}'])
def test_an_array_of_text_is_read_as_written(items: list[str | None]) -> None:
    text = "{" + ",".join(map(_quoted, items)) + "}"
    assert round_trip(TEXTS, text.encode()) == items


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=6))
def test_an_array_of_integers_is_read_as_written(items: list[int | None]) -> None:
    text = "{" + ",".join("NULL" if item is None else str(item) for item in items) + "}"
    assert round_trip(array_type(BIGINT, "bigint[]"), text.encode()) == items


@given(array_items.filter(bool))
def test_an_array_with_more_dimensions_keeps_its_text(items: list[str | None]) -> None:
    inner = "{" + ",".join(map(_quoted, items)) + "}"
    for text in ("{" + inner + "}", "[0:3]=" + inner):
        assert parse_array(text.encode()) is None
        assert round_trip(TEXTS, text.encode()) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_takes_the_fewest_bytes(value: int) -> None:
    zigzag = value * 2 if value >= 0 else -value * 2 - 1
    assert len(encode_long(value)) == max(1, -(-zigzag.bit_length() // 7))


# --- places and frames ----------------------------------------------------------------------


@given(lsns)
def test_an_lsn_survives_its_text(lsn: Lsn) -> None:
    assert Lsn.parse(str(lsn)) == lsn


@given(positions)
def test_a_position_survives_its_bytes_and_its_text(position: Position) -> None:
    assert Position.from_bytes(position.to_bytes()) == position
    assert Position.parse(str(position)) == position


near = st.builds(Position, st.integers(0, 3), st.integers(0, 300).map(Lsn), st.integers(0, 300))


@given(st.lists(st.one_of(positions, near), max_size=20))
def test_position_bytes_order_as_positions_do(some: list[Position]) -> None:
    assert sorted(some, key=Position.to_bytes) == sorted(some)


@given(positions, st.sampled_from(Op), st.integers(-(2**63), 2**63 - 1))
def test_headers_are_read_as_written(position: Position, op: Op, ts_us: int) -> None:
    assert decode_headers(encode_headers(position, op, ts_us)) == (position, op, ts_us)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=20))
def test_a_frame_gives_back_its_schema_id_and_body(schema_id: int, body: bytes) -> None:
    assert unframe(frame(schema_id) + body) == (schema_id, body)


@given(st.binary(max_size=12))
def test_bytes_without_a_frame_are_refused(raw: bytes) -> None:
    if len(raw) >= FRAME_BYTES and raw[0] == 0:
        assert unframe(raw)[1] == raw[FRAME_BYTES:]
        return
    try:
        unframe(raw)
    except CorruptRecordError:
        return
    raise AssertionError(f"{raw!r} was taken for a framed record")


frontiers = st.builds(
    Frontier,
    slot=topics,
    epoch=st.integers(1, 2**32 - 1),
    lsn=lsns,
    ts_us=st.integers(-(2**63), 2**63 - 1),
    system_id=st.integers(0, 2**64 - 1).map(str),
    timeline=st.integers(1, 99),
    cluster_id=topics,
    tables=st.dictionaries(topics, tables, max_size=3),
    topic_ids=st.dictionaries(topics, topics, max_size=3),
    ends=st.dictionaries(topics, st.lists(st.integers(0, 2**63 - 1)).map(tuple), max_size=3),
    since=st.dictionaries(topics, positions, max_size=3),
)


@given(frontiers)
def test_a_frontier_survives_its_json(frontier: Frontier) -> None:
    assert Frontier.from_json(frontier.to_json()) == frontier
    assert Frontier.from_json(frontier.to_json().encode()) == frontier


@given(st.one_of(texts, frontiers.map(lambda frontier: frontier.to_json()[:-1])))
def test_what_is_not_a_frontier_is_refused(text: str) -> None:
    try:
        Frontier.from_json(text)
    except CorruptRecordError:
        return
    raise AssertionError(f"{text!r} was taken for a frontier")


# --- names, schemas, topics -----------------------------------------------------------------

kinds = st.one_of(
    st.sampled_from(
        [
            column_type("bool", "boolean"),
            INTEGER,
            BIGINT,
            column_type("float4", "real"),
            column_type("float8", "double precision"),
            column_type("numeric", "numeric"),
            column_type("varchar", "character varying(20)"),
            column_type("bytea", "bytea"),
            column_type("date", "date"),
            column_type("timestamp", "timestamp(3) without time zone"),
            column_type("timestamptz", "timestamp with time zone"),
            column_type("interval", "interval"),
            column_type("uuid", "uuid"),
            column_type("jsonb", "jsonb"),
            column_type("mood", 'shop."my mood"', form=TypType.ENUM),
        ]
    ),
    decimals().map(lambda case: decimal_type(case[0], case[1])),
)
all_kinds = st.one_of(kinds, kinds.map(lambda kind: array_type(kind, f"{kind.name}[]")))


@st.composite
def relations(draw: st.DrawFn) -> Relation:
    columns = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    typed = tuple(Column(name, draw(all_kinds)) for name in columns)
    size = draw(st.integers(1, len(columns)))
    key = tuple(draw(st.permutations(columns))[:size])
    return Relation(1, draw(tables), typed, key)


@given(relations())
def test_a_schema_read_back_names_the_same_columns_and_types(relation: Relation) -> None:
    value = read_schema(value_schema(relation))
    assert (value.table, value.key) == (relation.name, relation.key)
    assert [(c.column, c.type) for c in value.columns] == [
        (column.name, column.type) for column in relation.columns
    ]
    assert {c.column for c in value.columns if not c.nullable} == set(relation.key)
    key = read_schema(key_schema(relation))
    assert tuple(c.column for c in key.columns) == relation.key
    assert [c.type for c in key.columns] == [column.type for column in relation.key_columns]


@given(st.lists(names, max_size=8, unique=True))
def test_field_names_are_legal_and_told_apart(columns: list[str]) -> None:
    fields = field_names(columns)
    assert len(set(fields)) == len(columns)
    assert all(field.isascii() and field.isidentifier() for field in fields)


@given(st.lists(tables, max_size=6, unique=True), st.sampled_from(["", "shop", "a.b"]))
def test_tables_share_no_topic_or_are_refused(some: list[TableName], prefix: str) -> None:
    try:
        named = topic_names(some, prefix)
    except ChangelogError:
        folded = [topic_name(table, prefix).replace(".", "_") for table in some]
        others = (frontier_topic, messages_topic, ddl_topic, schema_topic)
        reserved = [each(prefix).replace(".", "_") for each in others]
        assert len({*folded, *reserved}) < len(folded) + len(reserved)
        return
    assert set(named) == set(some)
    assert len(set(named.values())) == len(some)


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_a_key_lies_in_one_of_the_partitions(key: bytes, partitions: int) -> None:
    assert 0 <= murmur2(key) < 2**32
    assert 0 <= partition_of(key, partitions) < partitions


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**12))
def test_longer_lags_keep_the_promise_and_shorter_ones_do_not(
    lag: int, retention: int, more: int
) -> None:
    wanted = TopicSettings(min_compaction_lag_ms=lag, delete_retention_ms=retention)
    longer = TopicSettings(min_compaction_lag_ms=lag + more, delete_retention_ms=retention + more)
    assert wanted.differences(wanted.to_config()) == []
    assert wanted.differences(longer.to_config()) == []
    assert len(longer.differences(wanted.to_config())) == (2 if more else 0)


canaries = st.from_regex(r"canary[A-Za-z0-9!#$%*+.:;,_~-]{0,12}z", fullmatch=True)


@pytest.mark.parametrize(
    "line",
    [
        "postgresql://ann:{}@db:5432/app",
        "redis://:{}@127.0.0.1:6379/0",
        "host=db password={} user=ann",
        "host=db password='{} and more' user=ann",
        "PGPASSWORD={}",
        "{{'sasl.username': 'ann', 'sasl.password': '{}'}}",
        '{{"ssl.key.password": "{}", "x": 1}}',
        'sasl.jaas.config=PlainLoginModule required password="{}";',
        "basic.auth.user.info=ann:{}",
        "could not connect to http://ann:{}@registry:8081/subjects: refused",
        "AWS_SECRET={} AWS_SESSION_TOKEN={}",
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    ],
)
@given(canary=canaries)
def test_a_secret_never_survives_redaction(line: str, canary: str) -> None:
    shown = redacted(line.format(canary, canary))
    assert "canary" not in shown
    assert "***" in shown


@given(dates)
def test_days_are_monotonic_across_the_start_of_the_era(day: tuple[int, int, int]) -> None:
    year, month, of_month = day
    following = _date_text(year, month, of_month + 1) if of_month < 28 else None
    if following:
        assert days_of(following.encode()) == days_of(_date_text(*day).encode()) + 1
