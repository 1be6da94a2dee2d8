"""Which column gets which form of the values that its type does not hold."""

from __future__ import annotations

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.choices import (
    ChoicesError,
    ColumnChoice,
    ValueChoice,
    advice,
    as_viewed,
    choices_of,
    chosen,
)
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.types import ColumnType, Kind
from tests.support.builders import INTEGER, INTEGERS, decimal_type

TABLE = TableName("public", "prices")
KINDS = {
    "id": INTEGER,
    "day": ColumnType("date", Kind.DATE),
    "amount": decimal_type(10, 3),
    "ns": INTEGERS,
}
SCHEMA = LoggedSchema(
    TABLE,
    ("id", "day"),
    tuple(LoggedColumn(f"f_{name}", name, kind, nullable=True) for name, kind in KINDS.items()),
)
TEXT, NULL, REFUSE = ValueChoice.TEXT, ValueChoice.NULL, ValueChoice.REFUSE


def of(**choices: ValueChoice) -> list[ColumnChoice]:
    names = (name.replace("ANY", "*").replace("__", ".") for name in choices)
    return [ColumnChoice.parse(n, each) for n, each in zip(names, choices.values(), strict=True)]


@pytest.mark.parametrize(
    ("choices", "wanted"),
    [
        (of(public__prices__amount=NULL), {"amount": NULL}),
        (of(prices__amount=TEXT), {"amount": TEXT}),
        (of(public__ANY__amount=TEXT), {"amount": TEXT}),
        (of(ANY__ANY__ANY=NULL), {"amount": NULL, "ns": NULL}),
        (of(ANY__ANY__ANY=TEXT), {"day": TEXT, "amount": TEXT}),
        (of(ANY__ANY__ANY=TEXT, prices__amount=REFUSE), {"day": TEXT}),
        (of(prices__amount=NULL, ANY__ANY__ANY=TEXT), {"day": TEXT, "amount": NULL}),
        (of(other__amount=TEXT), {}),
    ],
)
def test_a_columns_own_name_counts_before_patterns(choices, wanted):
    assert chosen(choices, SCHEMA) == wanted


def test_patterns_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigurationError, match=r"both cover public\.prices\.amount"):
        chosen(of(public__prices__ANY=TEXT, ANY__ANY__amount=NULL), SCHEMA)


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        (of(prices__id=NULL), "all values of public.prices.id (integer) have a form"),
        (of(prices__day=NULL), "is of the primary key"),
        (of(prices__ns=TEXT), "is an array"),
    ],
)
def test_a_choice_that_does_nothing_says_why(choices, why):
    assert choices[0].obstacles(SCHEMA)
    assert why in choices[0].obstacles(SCHEMA)[0]
    assert of(prices__amount=TEXT)[0].obstacles(SCHEMA) is None
    assert of(prices__amuont=TEXT)[0].obstacles(SCHEMA) == []


def test_what_is_no_column_is_refused():
    with pytest.raises(ConfigurationError, match="is not a pattern of columns"):
        ColumnChoice.parse("amount", NULL)


def test_a_column_that_is_given_as_text_is_a_text_of_its_own_type():
    viewed = as_viewed(SCHEMA, {"amount": TEXT, "ns": NULL})
    kinds = {each.column: each.type for each in viewed.columns}
    assert (kinds["amount"].kind, kinds["amount"].name) == (Kind.STRING, KINDS["amount"].name)
    assert not kinds["amount"].has_escape
    assert kinds["ns"] == INTEGERS


def test_the_advice_is_a_line_that_can_be_pasted():
    odd = SCHEMA.columns[2]
    assert '"public.prices.amount" = "null" or "text"' in advice(TABLE, odd)
    assert '"\\"a b\\".c.amount" = "null"' in advice(TableName("a b", "c"), odd)
    assert '"text"' not in advice(TABLE, SCHEMA.columns[3])


def test_all_mistakes_are_told_at_once():
    amounts = of(public__prices__amoun=TEXT, public__ANY__amount=TEXT, ANY__ANY__amount=NULL)
    with pytest.raises(ChoicesError) as contradicted:
        chosen([*amounts, *of(ANY__prices__ns=NULL, public__ANY__ns=REFUSE)], SCHEMA)
    assert str(contradicted.value).count("both cover") == 2
    with pytest.raises(ChoicesError) as unread:
        choices_of({"amount": NULL, "public.prices.amount": TEXT, "b": TEXT})
    assert '"amount" is not a pattern' in str(unread.value)
    assert '"b" is not a pattern' in str(unread.value)
    assert str(unread.value).count("write schema.table.column") == 1
