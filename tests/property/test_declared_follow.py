"""Going on by what came since holds what a read of the whole declared log holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import VerdictError
from changelog.contract.forms.declared import (
    PLACEHOLDER,
    DeclaredLog,
    Order,
    ValueShape,
    declared_columns,
)
from changelog.contract.rows.relation import TableName
from tests.support.declared_memory import MemoryLog
from tests.support.examples import examples

KEYS = st.integers(0, 4)
PARTITIONS = 2


def declared(shape: ValueShape, order: Order) -> DeclaredLog:
    return DeclaredLog(
        table=TableName("public", "t"),
        topic="t",
        shape=shape,
        key=("id",),
        order=order,
        columns=declared_columns({"id": "int", "a": "string", "b": "string"}, "logs.t"),
    )


Rows = dict[int, dict[str, object]]
Act = tuple[str, int, int, bool]
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["c", "u", "u", "move", "d", "tombstone", "again", "cut", "cut"]),
        KEYS,
        KEYS,
        st.booleans(),
    ),
    max_size=30,
)


class Source:
    """Writes a log, and knows the rows that it says."""

    def __init__(self, log: MemoryLog) -> None:
        self._log, self.rows, self._count = log, Rows(), 0

    def act(self, what: str, key: int, other: int, *, leaves_out: bool) -> None:
        if what == "again":
            self._send_again(key % PARTITIONS, other + 1)
            return
        self._count += 1
        own = {"id": key, "a": f"a{self._count}", "b": f"b{self._count}"}
        if what in {"c", "u"}:
            said = dict(own)
            if leaves_out and what == "u" and key in self.rows:
                said["a"], own["a"] = PLACEHOLDER, self.rows[key]["a"]
            self._put(key, {"op": what, "before": None, "after": said})
            self.rows[key] = own
        elif what == "move":
            to = other - (other - key) % PARTITIONS  # its partition is that of the old key
            if to == key or to < 0:
                return
            moved = {**own, "id": to}
            self._put(key, {"op": "u", "before": {"id": key}, "after": moved})
            self.rows.pop(key, None)
            self.rows[to] = moved
        else:
            gone: dict[str, object] = {"op": "d", "before": {"id": key}, "after": None}
            self._put(key, gone if what == "d" else None)
            self.rows.pop(key, None)

    def _put(self, key: int, value: dict[str, object] | None) -> None:
        if value is not None:
            value["source"] = {"lsn": self._count}
        self._log.put({"id": key}, value, key % PARTITIONS)

    def _send_again(self, partition: int, count: int) -> None:
        """Write the last records of a partition again, which is no matter by their positions."""
        if self._log.of.order is Order.LSN:
            for each in self._log.log[partition][-count:]:
                self._log.put(each.raw_key, each.raw_value, partition)


KINDS = [
    (ValueShape.CUD_JSON, Order.OFFSET),
    (ValueShape.DEBEZIUM_JSON, Order.OFFSET),
    (ValueShape.DEBEZIUM_JSON, Order.LSN),
]


@given(ACTS, st.sampled_from(KINDS))
@examples(300)
def test_begun_and_gone_on_over_any_cuts_is_begun_at_the_last_one(acts, kind):
    (shape, order) = kind
    log = MemoryLog(declared(shape, order), PARTITIONS)
    source, following = Source(log), log.follow()
    following.begin(log.cut())
    touched: set[bytes] = set()
    for what, key, other, leaves_out in acts:
        if what != "cut":
            before = dict(source.rows)
            source.act(what, key, other, leaves_out=leaves_out and shape.value != "cud-json")
            changed = {k for k in {*before, *source.rows} if before.get(k) != source.rows.get(k)}
            touched |= {f"[{each}]".encode() for each in changed}
            continue
        try:
            assert touched <= following.advance(log.cut())
        except VerdictError:  # something was sent again
            assert order is Order.LSN
            following = log.follow()
            try:
                following.begin(log.cut())
            except VerdictError:  # behind a tombstone that no delete stands before
                return
        touched = set()
        whole = log.follow()
        try:
            assert following.rows == whole.begin(log.cut())
        except VerdictError:
            assert order is Order.LSN
            return
        decode = whole.followed._encoder.decode
        assert {key: decode(value) for key, value in following.rows.items()} == {
            f"[{key}]".encode(): [*row.values()] for key, row in source.rows.items()
        }
