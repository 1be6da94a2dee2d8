"""Keys as a person writes them, their bytes on the log, and which record of a key decides."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import key_schema, value_schema
from replay.decode.schemas import TopicSchemas
from tests.support.builders import KEY_SCHEMA_ID, VALUE_SCHEMA_ID, make_codec, make_relation
from views.erase.keys import ErasedKeys, encoded, parse_keys
from views.erase.notes import note_of, pending
from views.erase.topic import KeyRecord, alive, never_cleaned

RELATION = make_relation()
SCHEMAS = TopicSchemas(
    "things",
    KEY_SCHEMA_ID,
    {VALUE_SCHEMA_ID: value_schema(RELATION)},
    VALUE_SCHEMA_ID,
    key=key_schema(RELATION),
)


def keys(*texts: str) -> ErasedKeys:
    return encoded([(text,) for text in texts], TableName("public", "things"), SCHEMAS)


def test_a_key_has_the_bytes_that_capture_writes() -> None:
    framed = [make_codec(RELATION).encode_key((text,)) for text in (b"7", b"300")]
    assert keys("7", "300", "7").bodies == {raw[5:] for raw in framed}


def test_keys_are_the_columns_of_one_or_lines_of_a_file(tmp_path) -> None:
    file = tmp_path / "keys.jsonl"
    file.write_text('{"id": 42}\n\n{"id": "43"}\n', "utf-8")
    assert parse_keys(["a=1", "b=x=y"], None) == [{"a": "1", "b": "x=y"}]
    assert parse_keys([], file) == [{"id": "42"}, {"id": "43"}]


@pytest.mark.parametrize("parts", [[], ["id"], ["=1"], ["id=1", "id=2"]])
def test_what_is_no_key_is_refused(parts) -> None:
    with pytest.raises(ConfigurationError):
        parse_keys(parts, None)


@pytest.mark.parametrize("line", ["[1]", "{}", '{"id": 1.5}', '{"id": true}', "x"])
def test_a_line_that_is_no_key_is_refused_with_its_place(tmp_path, line) -> None:
    file = tmp_path / "keys.jsonl"
    file.write_text(f'{{"id": 1}}\n{line}\n', "utf-8")
    with pytest.raises(ConfigurationError, match="line 2"):
        parse_keys([], file)


def record(offset: int, body: bytes, *, lsn: int, is_tombstone: bool = False) -> KeyRecord:
    return KeyRecord(
        partition=0,
        offset=offset,
        at_ms=0,
        is_tombstone=is_tombstone,
        body=body,
        position=Position(1, Lsn(lsn), 0),
    )


def test_the_last_record_of_a_key_by_position_decides() -> None:
    late_value = record(0, b"a", lsn=30)
    assert alive([late_value, record(1, b"a", lsn=20, is_tombstone=True)]) == [late_value]
    assert alive([record(0, b"a", lsn=10), record(1, b"a", lsn=20, is_tombstone=True)]) == []
    assert alive([record(0, b"b", lsn=10), record(1, b"b", lsn=10)]) != []


def test_a_row_whose_delete_is_in_another_partition_is_never_cleaned() -> None:
    value, delete = record(0, b"a", lsn=10), record(1, b"a", lsn=20, is_tombstone=True)
    assert never_cleaned([value, delete]) == []
    assert never_cleaned([value, replace(delete, partition=1)]) == [value]


def test_a_note_is_met_again_by_the_same_keys_alone(tmp_path) -> None:
    note = note_of(str(tmp_path), keys("7", "300"))
    note.met(5)
    note.views["prices"] = 3
    note.settings = {"segment.ms": None}
    note.save()
    again = note_of(str(tmp_path), keys("300", "7"))
    assert again == note
    assert note_of(str(tmp_path), keys("7")).place != note.place
    (file,) = (tmp_path / "_erasures" / "pending").iterdir()
    assert "300" not in json.dumps(sorted(json.loads(file.read_text("utf-8")).keys()))
    again.met(5)
    assert again.views == {"prices": 3}
    again.met(6)
    assert again.views == {}, "a record that is new may be in what was built"
    again.remove()
    assert not [*pending(str(tmp_path))]


def test_digests_of_keys_hang_on_the_secret() -> None:
    first, second = (keys("7", "8").digests(bytes([n]) * 32) for n in (1, 2))
    assert not {*first} & {*second}
    assert first == keys("8", "7").digests(bytes([1]) * 32)
