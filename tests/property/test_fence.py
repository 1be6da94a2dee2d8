"""The law of fences: whatever the interleaving, rows and stream together fold to the table.

The model is PostgreSQL's: a transaction locks the rows that it writes, its commit record goes into
the WAL, and some time later it becomes visible and lets the locks go. The stream follows the order
of commit records, and lags. A row's new version may lie in another chunk than its old one.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from changelog.capture.write.fence import MANY_XIDS, Recent, XidSnapshot

FIRST_XID = (1 << 32) - 3  # the stream's numbers wrap round under way
KEYS, CHUNKS, WRITERS = 4, 2, 3
TOPIC = "t"


@dataclass
class Transaction:
    xid: int
    changes: list = field(default_factory=list)  # (key, value or None, chunk)


class Model:
    """A table, its WAL, a capture that lags, and the log that it writes."""

    def __init__(self, *, bulk, skip=True, check=True):
        self.bulk, self.skip, self.check = bulk, skip, check
        self.running: dict[int, Transaction] = {}
        self.flushed: list[Transaction] = []  # in the WAL, not visible
        self.rows = {key: (f"old{key}", key % CHUNKS) for key in range(KEYS)}
        self.locks: dict[int, int] = {}
        self.wal: list = []
        self.read_to = 0
        self.next_xid = FIRST_XID
        self.log: dict[int, tuple[int, str | None]] = {}
        self.since = -1
        self.recent = Recent()
        self.snapshot: dict | None = None  # while its mark is awaited
        self.left = list(range(CHUNKS))

    # --- PostgreSQL ---------------------------------------------------------------------------

    def write(self, writer, key, chunk, delete):
        transaction = self.running.get(writer)
        if transaction is None:
            transaction = self.running[writer] = Transaction(self.next_xid)
            self.next_xid += 1
        if self.locks.setdefault(key, transaction.xid) != transaction.xid:
            return
        if self.since < 0:
            chunk %= CHUNKS  # no page is new before the plan is made
        value = None if delete else f"{transaction.xid}:{len(transaction.changes)}"
        transaction.changes.append((key, value, chunk))

    def flush(self, writer):
        transaction = self.running.pop(writer, None)
        if transaction is not None:
            self.flushed.append(transaction)
            self.wal.append(transaction)

    def show(self, place):
        if not self.flushed:
            return
        transaction = self.flushed.pop(place % len(self.flushed))
        for key, value, chunk in transaction.changes:
            self.rows.pop(key, None)
            if value is not None:
                self.rows[key] = (value, chunk)
        self.locks = {key: xid for key, xid in self.locks.items() if xid != transaction.xid}

    def take_snapshot(self):
        hidden = {t.xid for t in [*self.running.values(), *self.flushed]}
        return XidSnapshot(min(hidden, default=self.next_xid), self.next_xid, frozenset(hidden))

    # --- capture ------------------------------------------------------------------------------

    def read(self):
        if self.read_to == len(self.wal):
            return
        position, found = self.read_to, self.wal[self.read_to]
        self.read_to += 1
        if found == "mark":
            self.copy(position)
            return
        xid = found.xid % (1 << 32)
        keys = [str(key).encode() for key, _, _ in found.changes]
        if self.bulk:
            if self.recent.noting:
                self.recent.touch_all([xid], TOPIC, keys)
            self.recent.ran([xid])
        else:
            self.recent.began(xid)
            for key in keys if self.recent.noting else ():
                self.recent.touch(TOPIC, key)
        for key, value, _ in found.changes:
            self.log[key] = (position, value)

    def fence(self):
        if self.snapshot is not None or not self.left:
            return
        if not self.recent.noting:
            self.recent.open()
            self.since = self.read_to if self.since < 0 else self.since
        if self.recent.look(self.take_snapshot()) and self.check:
            return
        self.snapshot = dict(self.rows)
        self.wal.append("mark")

    def copy(self, position):
        touched = self.recent.touched().get(TOPIC, frozenset()) if self.skip else frozenset()
        chunk = self.left.pop(0)
        for key, (value, place) in (self.snapshot or {}).items():
            if place == chunk and str(key).encode() not in touched:
                self.log[key] = (position, value)
        self.snapshot = None
        self.recent.close()

    def forget(self):
        self.recent.forget(self.take_snapshot())

    # --- the end ------------------------------------------------------------------------------

    def finish(self):
        for writer in list(self.running):
            self.flush(writer)
        while self.flushed:
            self.show(0)
        while self.left or self.read_to < len(self.wal):
            self.fence()
            self.read()

    def folded(self):
        return {
            key: value
            for key, (position, value) in self.log.items()
            if value is not None and position >= self.since
        }

    def is_exact(self):
        return self.folded() == {key: value for key, (value, _) in self.rows.items()}


keys, chunks = st.integers(0, KEYS - 1), st.integers(0, CHUNKS)  # the last is in new pages
writers = st.integers(0, WRITERS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), writers, keys, chunks, st.booleans()),
        st.tuples(st.just("flush"), writers),
        st.tuples(st.just("show"), st.integers(0, 5)),
        st.tuples(st.just("read")),
        st.tuples(st.just("fence")),
        st.tuples(st.just("forget")),
    ),
    max_size=60,
)


def played(script, **options):
    model = Model(**options)
    for name, *arguments in script:
        getattr(model, name)(*arguments)
    model.finish()
    return model


@given(steps, st.booleans())
def test_rows_and_stream_fold_to_the_table_for_every_interleaving(script, bulk):
    model = played(script, bulk=bulk)
    assert model.is_exact()


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("defect", ["check", "skip"])
def test_twin_a_defect_is_found_by_the_same_law(defect, bulk):
    """Without the check of invisible transactions, and with touched keys copied, it fails."""
    script = find(
        steps,
        lambda script: not played(script, bulk=bulk, **{defect: False}).is_exact(),
        settings=settings(
            max_examples=20_000, deadline=None, database=None, phases=[Phase.generate]
        ),
        random=Random(1),  # noqa: S311 - the same examples at every run
    )
    assert played(script, bulk=bulk).is_exact()


def test_twin_a_commit_streamed_before_the_fence_and_not_visible_yet():
    # The other tools' race: streamed, then the fence, then visible.
    script = [("fence",), ("read",), ("write", 0, 1, 1, False), ("flush", 0), ("read",), ("fence",)]
    assert played([*script, ("show", 0)], bulk=False).is_exact()
    assert not played([*script, ("show", 0)], bulk=False, check=False).is_exact()


@given(
    st.integers(0, 1 << 40),
    st.sets(st.integers(0, 300)),
    st.lists(st.integers(-1000, 1000), max_size=20),
)
def test_what_a_snapshot_does_not_see_is_found_by_32_bits(xmax, before, near):
    xip = frozenset(xmax - 1 - each for each in before if each < xmax)
    snapshot = XidSnapshot(min(xip, default=xmax), xmax, xip)
    full = [xmax + each for each in near if xmax + each >= 0]
    hidden = snapshot.hidden([xid % (1 << 32) for xid in full])
    assert hidden == [xid % (1 << 32) for xid in full if xid >= xmax or xid in xip]


@given(st.integers(0, 99), st.integers(0, 9), st.sets(st.integers(0, 99)))
def test_a_snapshot_is_read_as_the_server_writes_it(xmin, more, xip):
    text = f"{xmin}:{xmin + more}:{','.join(map(str, sorted(xip)))}"
    assert XidSnapshot.parse(text) == XidSnapshot(xmin, xmin + more, frozenset(xip))


def test_transactions_that_stay_invisible_do_not_make_us_ask_again_and_again():
    recent = Recent()
    recent.ran(range(MANY_XIDS + 1))
    asked = [recent.many]
    recent.forget(XidSnapshot(0, 1 << 20, frozenset(range(MANY_XIDS + 1))))
    asked.append(recent.many)
    assert asked == [True, False]
    recent.open()
    assert len(recent.look(XidSnapshot(0, 1 << 20, frozenset({7, 9})))) == 2


def test_a_snapshot_of_a_standby_sees_all_that_was_streamed_and_leaves_out_what_may_run():
    recent = Recent()
    recent.ran([90, 105])
    recent.open()
    recent.ran([95])
    recent.touch("orders", b"older than all that runs")
    recent.ran([106])
    recent.touch("orders", b"may run")
    standby = XidSnapshot.parse("100:110:", names_running=False)
    assert recent.look(standby) == []
    recent.ran([107])
    recent.touch("orders", b"comes later")
    assert recent.touched() == {"orders": frozenset({b"may run", b"comes later"})}
    # The twin: by the same text a primary says that nothing runs.
    assert XidSnapshot.parse("100:110:").hidden([106]) == []
