"""The law of kept logs: what was read and what came since is what a whole reading gives."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import CorruptRecordError, VerdictError
from changelog.contract.forms.declared import DeclaredLog, Order, Unavailable, ValueShape
from tests.support.examples import examples
from tests.support.said import Kept, Told, ToldLog, things
from views.verify.kept import statements
from views.verify.kept.statements import KeptStatements
from views.verify.log.declared import GONE, ROW, TOMBSTONE, RecordStatement

KEYS = st.integers(1, 5)
LEFT_OUT = "__debezium_unavailable_value"
NAMES = st.sampled_from([*(None, "a", "ü", "", "b", "c") * 2, LEFT_OUT, LEFT_OUT, [LEFT_OUT]])
PRICES = st.sampled_from([*(None, "1.50", "-0.01", 12, "3.00") * 2, LEFT_OUT])
OPERATIONS = st.sampled_from("cruuud")
UNAVAILABLE = st.sampled_from(list(Unavailable))


def histories(steps: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    """Return changes, part by part, each with the step that the source's position goes."""
    changes = st.tuples(OPERATIONS, KEYS, KEYS, NAMES, PRICES, st.integers(0, 30), steps)
    return st.lists(st.lists(changes, max_size=8), min_size=1, max_size=5)


class Source:
    """Writes changes into a log, with the position that each has."""

    def __init__(self, log: ToldLog, of: DeclaredLog):
        self.log, self.shape = log, of.shape
        self.is_placed = of.order is Order.LSN
        self.lsn = 100

    def write(self, change: Any) -> None:
        """Append what a change says; now and then of a key where it does not belong."""
        op, number, other, name, price, odd, step = change
        self.lsn += step
        key = {"id": number}
        partition = (number % 2) if odd else 1 - number % 2
        row = {"id": number, "name": name, "price": price}
        envelope = {"op": op, "before": None, "after": None if op == "d" else row}
        if self.is_placed:
            envelope["source"] = {"lsn": self.lsn}
        if self.shape is ValueShape.CUD_JSON:
            keyed = {**row, "id": other if other % 2 == number % 2 else number}
            before = {"c": None, "r": None, "u": keyed, "d": row}[op]
            self.log.put(None, {**envelope, "before": before}, partition)
        elif op == "d" and (self.shape is ValueShape.FLAT_JSON or odd % 2):
            self.log.put(key, None, partition)
        elif self.shape is ValueShape.FLAT_JSON:
            self.log.put(key, row, partition)
        else:
            self.log.put(key, {**envelope, "before": key if op == "d" else None}, partition)
            if op == "d" and odd % 3:
                self.log.put(key, None, partition)


def model(kept: Kept, records: Any) -> dict[str, tuple[int, int | None, int | None]]:
    """Return where each key stands, the record of its row and its position, by sorting."""
    told: dict[str, list[tuple[Told, RecordStatement]]] = {}
    for each in records:
        for said in kept.reader.statements(each.key(), each.value()):
            assert said.name is not None
            told.setdefault(said.name, []).append((each, said))
    found = {}
    for name, of_key in told.items():
        placed, reached, behind = [], -1, ""
        for number, (record, said) in enumerate(of_key):
            reached = max(reached, -1 if said.lsn is None else said.lsn)
            if said.kind != TOMBSTONE or behind != GONE:
                is_by_lsn = kept.reader.log.order is Order.LSN
                at = (reached if said.lsn is None else said.lsn) if is_by_lsn else 0
                placed.append((at, number, record.off if said.kind == ROW else None))
            behind = said.kind
        lsn = max((said.lsn for _, said in of_key if said.lsn is not None), default=None)
        found[name] = (of_key[0][0].part, max(placed)[2], lsn)
    return found


def facts(kept: Kept) -> tuple[Any, ...]:
    return kept.columns(), [tuple(map(repr, row)) for row in kept.rows()], kept.names()


def lived(of: DeclaredLog, history: Any, refusals: str = "left out") -> int:
    """Bring a state forward from part to part; require at each that it is the whole.

    Returns:
        How often that was refused, for one of the reasons that may be.
    """
    log, refused = ToldLog(), 0
    source = Source(log, of)
    with duckdb.connect() as database:
        kept, is_begun = Kept(database, of), False
        for part in history:
            was = len(log.records)
            for change in part:
                source.write(change)
            later, whole = log.records[was:], Kept(database, of, "whole")
            try:
                whole.begin(log.records)
            except (CorruptRecordError, VerdictError):
                if is_begun:
                    with pytest.raises((VerdictError, CorruptRecordError)):
                        kept.advance(later)
                return refused
            try:
                kept.advance(later) if is_begun else kept.begin(log.records)
            except VerdictError as error:
                assert re.search(refusals, str(error))  # noqa: PT017 - or none
                kept = Kept(database, of)
                kept.begin(log.records)
                later, refused = [], refused + 1
            assert facts(kept) == facts(whole)
            assert {each[0]: each[1:4] for each in kept.names()} == model(kept, log.records)
            told = {
                said.name
                for each in later
                for said in kept.reader.statements(each.key(), each.value())
            }
            assert not (is_begun and later) or kept.touched == len(told)
            is_begun = True
    return refused


SENT_AGAIN = st.sampled_from([1, 1, 1, 2, 2, 3, 0, 0, -1, -4])
SHAPES = st.sampled_from([shape for shape in ValueShape if not shape.is_registered])


@given(SHAPES, UNAVAILABLE, histories(st.just(0)))
@examples(60)
def test_what_was_kept_and_what_came_since_is_the_whole(shape, unavailable, history):
    lived(things(shape, on_unavailable=unavailable), history)


@given(UNAVAILABLE, histories(st.integers(0, 2)))
@examples(40)
def test_so_it_is_in_the_order_of_the_source(unavailable, history):
    lived(by_lsn(on_unavailable=unavailable), history)


@given(UNAVAILABLE, histories(SENT_AGAIN))
@examples(40)
def test_what_is_sent_again_is_refused_or_changes_nothing(unavailable, history):
    lived(by_lsn(on_unavailable=unavailable), history, "left out|sent again")


def by_lsn(**more: Any) -> DeclaredLog:
    return things(ValueShape.DEBEZIUM_JSON, order=Order.LSN, **more)


def change(op: str, number: int, name: Any, *, odd: int = 2, step: int = 1) -> Any:
    return op, number, number, name, None, odd, step


def test_a_fold_that_takes_the_first_statement_breaks_the_law(monkeypatch):
    defect = "QUALIFY row_number() OVER (PARTITION BY name ORDER BY off, step) = 1"
    monkeypatch.setattr(statements, "_LAST", defect)
    with pytest.raises((AssertionError, VerdictError)):
        lived(things(ValueShape.FLAT_JSON), [[], [change("c", 1, "a"), change("d", 1, None)]])


def test_a_state_that_does_not_look_where_keys_stand_breaks_the_law(monkeypatch):
    monkeypatch.setattr(KeptStatements, "_require_one_place", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        lived(things(ValueShape.FLAT_JSON), [[change("d", 1, None)], [change("c", 1, "a", odd=0)]])


def seeded(monkeypatch, defect: str, of: DeclaredLog, history: Any) -> None:
    """Require that a history obeys the law, and breaks it without one of the checks."""
    assert lived(of, history, "left out|sent again") == 1
    monkeypatch.setattr(KeptStatements, defect, lambda *_: None)
    with pytest.raises(AssertionError):
        lived(of, history)


def test_a_state_that_takes_what_was_sent_again_breaks_the_law(monkeypatch):
    again = [[change("u", 1, "a"), change("u", 1, "b")], [change("u", 1, "a", step=-1)]]
    seeded(monkeypatch, "_require_ascending", by_lsn(), again)


def test_a_tombstone_behind_a_delete_that_was_sent_again_breaks_the_law(monkeypatch):
    """The delete is older than the row, so that its tombstone says nothing."""
    held = [change("u", 1, "b"), change("d", 1, None, odd=6, step=-1)]
    seeded(monkeypatch, "_require_ascending", by_lsn(), [held, [change("d", 1, None, odd=1)]])


def test_a_row_that_may_get_its_values_later_breaks_the_law(monkeypatch):
    """A row that changed its key is there before the delete of the old one."""
    held = [change("c", 2, "a"), change("c", 1, LEFT_OUT)]
    of = by_lsn(on_unavailable=Unavailable.NULL)
    history = [held, [change("d", 2, None, odd=6, step=0)]]
    seeded(monkeypatch, "_require_unlinked", of, history)


def test_a_state_that_does_not_take_what_is_held_breaks_the_law(monkeypatch):
    history = [[change("c", 1, "a")], [change("u", 1, LEFT_OUT)]]
    assert lived(by_lsn(), history) == 0
    monkeypatch.setattr(KeptStatements, "_fill_held", lambda *_: None)
    with pytest.raises(AssertionError):
        lived(by_lsn(), history)
