"""What records leave out is found in older ones, from key to key, as a dictionary would have it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from replay.declared.key_changes import departures, resolved
from views.verify.log.left_out import KeyStatement, bundles, unbundled

COLUMNS = ("a", "b")
KEYS = st.integers(1, 3)
CHANGED = st.sets(st.sampled_from(COLUMNS))


@dataclass
class Source:
    """A table of the source, and what a connector writes: all that did not change is left out.

    Attributes:
        rows: by key, as the table has them.
        said: what the log says, by key, in its order.
        left: what rows had when they were deleted or left their key, by position.
    """

    rows: dict[int, dict[str, int]] = field(default_factory=dict)
    said: dict[int, list[tuple[int, dict[str, int] | None, frozenset[str], bool]]] = field(
        default_factory=dict
    )
    left: dict[int, dict[str, int]] = field(default_factory=dict)
    lsn: int = 0

    def write(self, key: int, row: dict[str, int] | None, lacks=frozenset(), begins=True) -> None:
        self.said.setdefault(key, []).append((self.lsn, row, frozenset(lacks), begins))

    def act(self, key: int, other: int, changed: set[str], *, deletes: bool) -> None:
        self.lsn += 1
        row = self.rows.get(key)
        if row is None:
            self.rows[key] = dict.fromkeys(COLUMNS, self.lsn)
            self.write(key, self.rows[key])
        elif deletes:
            self.left[self.lsn] = self.rows.pop(key)
            self.write(key, None)
        else:
            new = {name: self.lsn if name in changed else row[name] for name in COLUMNS}
            to = key if other in self.rows else other
            if to != key:
                self.left[self.lsn] = self.rows.pop(key)
                self.write(key, None)
            self.rows[to] = new
            self.write(to, new, {*COLUMNS} - changed, begins=to != key)


@st.composite
def sources(draw) -> Source:
    made = Source()
    for _ in range(draw(st.integers(1, 20))):
        made.act(draw(KEYS), draw(KEYS), draw(CHANGED), deletes=draw(st.integers(0, 5)) == 0)
    return made


@given(sources())
def test_the_verifier_puts_beside_each_row_the_records_that_have_what_it_lacks(source):
    statements = []
    for key, said in source.said.items():
        for place, (lsn, row, lacks, begins) in enumerate(said):
            value = None if row is None else document(row, lacks)
            at = KeyStatement((key, place), value, lacks, begins, lsn)
            statements.append((str(key), at))
    found = {}
    for key, _, bundle in bundles(statements):
        own, older = unbundled(bundle)
        found[key] = json.loads(own)
        for names, record in older:
            found[key] |= {name: json.loads(record)[name] for name in names}
    partial = {key for key, said in source.said.items() if key in source.rows and said[-1][2]}
    assert found == {key: source.rows[key] for key in partial}


@given(sources())
def test_the_rebuild_knows_what_each_row_had_when_it_left_its_key(source):
    rows: list[dict[str, int] | None] = []
    said = []
    for key, each in source.said.items():
        for lsn, row, lacks, begins in each:
            missing = [COLUMNS.index(name) for name in lacks] if row else []
            facts = {"key": str(key), "lsn": lsn, "is_tombstone": False}
            said.append(({**facts, "missing": missing, "begins": begins and row is not None}, row))
            rows.append(row)
    places = range(len(COLUMNS))
    cells = dict(departures(((facts, row is not None) for facts, row in said), places))
    found = {}
    for lsn in cells:
        held = [resolved(cells, lsn, column) for column in places]
        found[lsn] = {
            name: (rows[at] or {})[name]
            for name, at in zip(COLUMNS, held, strict=True)
            if at is not None
        }
    assert found == source.left


def document(row: dict[str, int], lacks: frozenset[str]) -> bytes:
    return json.dumps({name: each for name, each in row.items() if name not in lacks}).encode()
