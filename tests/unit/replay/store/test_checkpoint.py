"""What a manifest says, which checkpoints stay, and which layers nobody needs."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.schema import SchemaPin
from replay.base.record_place import cut_of
from replay.spark.warehouse import SETTINGS
from replay.store.checkpoint import (
    Checkpoint,
    CheckpointConflictError,
    CheckpointError,
    CheckpointStore,
    Layer,
    Manifest,
    kept,
    unnamed,
)
from replay.store.stored import StoredRecords
from replay.verdict.increment import StoredBase
from tests.unit.replay.states import RECORD

NOW = datetime(2026, 1, 10, 12, 0, tzinfo=UTC)
BASE = StoredBase(record=RECORD, lag_ms=1, retention_ms=2, pin=SchemaPin(3, 4))


def made(minutes: float, *names: str) -> Checkpoint:
    return Checkpoint(
        topic="things",
        base=BASE,
        layers=tuple(Layer(name, 5, 1) for name in names or ("base",)),
        founded=RECORD.frontier,
        folded=RECORD.frontier,
        at=NOW - timedelta(minutes=minutes),
    )


def test_a_checkpoint_is_read_as_it_was_written(tmp_path) -> None:
    store = CheckpointStore(str(tmp_path))
    assert store.manifest("things") == Manifest()
    first, second = made(2, "a"), made(1, "a", "b")
    store.seal(first, store.manifest("things"), [])
    store.seal(second, store.manifest("things"), [first])
    assert store.manifest("things") == Manifest((first, second), 1)
    assert store.newest("things") == second
    assert store.newest("others") is None
    table = DeltaTable(tmp_path / "_checkpoints" / "things" / "manifest")
    assert table.metadata().configuration == SETTINGS
    table.alter.set_table_properties(dict.fromkeys(SETTINGS, "interval 7 days"))
    store.tidy("things", hours=0)
    assert store.manifest("things").checkpoints == (first, second)
    table.update_incremental()
    assert table.metadata().configuration == SETTINGS


@pytest.mark.parametrize("earlier", [0, 1])
def test_the_second_of_two_that_began_alike_does_not_count(tmp_path, earlier) -> None:
    store = CheckpointStore(str(tmp_path))
    for _ in range(earlier):
        store.seal(made(3), store.manifest("things"), [])
    before = store.manifest("things")
    store.seal(made(2), before, [])
    with pytest.raises(CheckpointConflictError):
        store.seal(made(1), before, [])
    assert store.newest("things") == made(2)


def test_another_format_is_refused() -> None:
    text = made(1).to_json().replace('"format": 1', '"format": 9')
    with pytest.raises(CheckpointError, match="format 9"):
        Checkpoint.from_json(text)


def test_many_young_checkpoints_stay_and_few_old_ones() -> None:
    ages = [20_000, 9_000, 8_990, 2_000, 1_990, 90, 80, 70, 9, 5, 1]
    checkpoints = [made(age) for age in ages]
    stay = kept(checkpoints, now=NOW, days=7)
    # 20,000 minutes are two weeks; 9,000 and 8,990 one day, as are 2,000 and 1,990; 90, 80 and
    # 70 are of one hour.
    assert [(NOW - each.at).total_seconds() / 60 for each in stay] == [8_990, 1_990, 70, 9, 5, 1]


def test_a_layer_that_no_checkpoint_names_goes_once_it_is_old() -> None:
    manifest = Manifest((made(1, "20260101T000000-a"),), 0)
    there = ["20260101T000000-a", "20260102T000000-b", f"{NOW:%Y%m%dT%H%M%S}-c"]
    assert unnamed(manifest, there, now=NOW) == ["20260102T000000-b"]
    assert unnamed(replace(manifest, checkpoints=()), there, now=NOW) == there[:2]


def test_a_layer_of_before_positions_were_noted_is_read() -> None:
    text = made(1, "a", "b").to_json().replace(", null, null]", "]")
    assert json.loads(text)["layers"] == [["a", 5, 1], ["b", 5, 1]]
    assert Checkpoint.from_json(text) == made(1, "a", "b")


gaps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans(), st.booleans()), max_size=6
)


@given(gaps, st.integers(0, 40))
def test_layers_since_a_position_hold_what_came_from_there_on_and_no_more(steps, at) -> None:
    """Layers follow each other with gaps between them, in which nothing was written."""
    layers, records, spans, place = [Layer("base", 5)], {}, [], 0
    for number, (gap, length, is_empty, is_noted) in enumerate(steps):
        since, place = place + gap, place + gap + length
        held = set() if is_empty else set(range(since, place))
        records[f"layer {number}"] = held
        spans.append((since, place))
        noted = (Position(1, Lsn(since), 0), Position(1, Lsn(place), 0)) if is_noted else ()
        layers.append(Layer(f"layer {number}", len(held), 0, *noted))
    checkpoint = replace(made(1), layers=tuple(layers))
    assert Checkpoint.from_json(checkpoint.to_json()) == checkpoint
    found = checkpoint.layers_since(Position(1, Lsn(at), 0))
    everything = {record for held in records.values() for record in held}
    if found is not None:
        held = {record for layer in found for record in records[layer.name]}
        assert held == {record for record in everything if record >= at}
        assert all(layer.rows for layer in found)
    elif all(is_noted for *_, is_noted in steps):
        assert any(since < at < until for since, until in spans), "only such a layer is cut in two"


def test_what_keys_held_is_known_between_layers_and_not_inside_of_one() -> None:
    """A layer has the last record of each key: one that was touched twice in it lacks the first."""
    begins = cut_of(RECORD.frontier)

    def at(bytes_on: int) -> Position:
        return begins._replace(commit_lsn=Lsn(begins.commit_lsn + bytes_on))

    layers = (Layer("base", 5), Layer("one", 3, 0, at(0), at(4)), Layer("two", 3, 0, at(6), at(9)))
    checkpoint = replace(made(1), layers=layers)
    nothing: Any = None
    stored = StoredRecords(checkpoint, nothing, nothing, nothing, nothing, nothing)
    known = [bytes_on for bytes_on in range(10) if stored.knows_rows_at(at(bytes_on))]
    assert known == [0, 4, 5, 6, 9]
    assert not stored.knows_rows_at(Position(begins.epoch, Lsn(0), 0))
