"""Frontiers side by side: each topic is read to its own, under the name that views have for it."""

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.joined import beside, joined
from changelog.contract.rows.relation import TableName

ORDERS, PAYMENTS = TableName("public", "orders"), TableName("public", "payments")
PAID = TableName("billing", "paid")
OWN = Frontier(
    slot="shop",
    epoch=1,
    lsn=Lsn(10),
    ts_us=0,
    system_id="1",
    tables={"orders": ORDERS},
    topic_ids={"orders": "a"},
    ends={"orders": (1,)},
)
OTHER = Frontier(
    slot="billing",
    epoch=4,
    lsn=Lsn(99),
    ts_us=0,
    system_id="2",
    tables={"b.payments": PAYMENTS, "b.orders": ORDERS},
    topic_ids={"b.payments": "b", "b.orders": "c"},
    ends={"b.payments": (7, 8), "b.orders": (3,)},
    since={"b.payments": Position(4, Lsn(50), 0)},
    children={PAYMENTS: (TableName("public", "refunds"),)},
)


def test_a_topic_is_read_to_the_frontier_of_its_own_capture() -> None:
    found = joined(OWN, {"b.payments": (PAID, OTHER)})
    assert (found.slot, found.epoch, found.lsn) == ("shop", 1, Lsn(10))
    assert found.tables == {"orders": ORDERS, "b.payments": PAID}
    assert found.ends == {"orders": (1,), "b.payments": (7, 8)}
    assert found.since == OTHER.since
    assert found.children == {PAID: (TableName("public", "refunds"),)}
    assert found.of("b.payments") is OTHER
    assert found.of("orders") is found
    assert OWN.of("orders") is OWN


def test_the_frontiers_beside_the_first_are_told_once_each() -> None:
    pairs = {"b.payments": (PAID, OTHER), "b.orders": (TableName("billing", "orders"), OTHER)}
    found = joined(OWN, pairs)
    assert beside(found, ["orders"]) == []
    assert beside(found, ["orders", *pairs]) == [(OTHER, [*pairs])]
    assert beside(OWN, ["orders"]) == []
