"""Options of a load: types for a table that is made."""

from __future__ import annotations

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.load.prepare import RowOptions, prepare


def prepared(**options):
    return prepare(
        RowOptions(topics=["t"], table="t", **options), "postgresql://", "n", lambda _: None
    )


@pytest.mark.parametrize(
    "types",
    [
        "id=bigint,price=numeric(10,2))",
        "id=numeric((10,2),price=int",
        "id=numeric(10,2",
        ")id=int",
        "id=int,id=text",
        "id",
        "=int",
    ],
)
def test_types_that_do_not_parse_are_refused_whole(types):
    with pytest.raises(ConfigurationError, match="is not a list of columns and types"):
        prepared(types=types, create=True)


def test_types_without_a_table_to_make_are_refused():
    with pytest.raises(ConfigurationError, match="--types only works with --create"):
        prepared(types="id=int")
