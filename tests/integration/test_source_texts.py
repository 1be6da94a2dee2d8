"""The generators of the property tests make only what PostgreSQL writes."""

from contextlib import closing
from decimal import Decimal

import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from changelog.contract.rows.types import ColumnType
from tests.support.builders import decimal_type
from tests.support.source_texts import CASES

AT_ONCE = 100
UNLIKE = "SELECT x, format('%%s', x::{0}) FROM unnest(%s) AS x WHERE format('%%s', x::{0}) <> x"


def unlike(dsn: str, kind: ColumnType, texts: list[str]) -> list[tuple[str, str]]:
    """Return the texts that the server writes otherwise, each with how."""
    connection = psycopg2.connect(dsn, options="-c timezone=UTC")
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(UNLIKE.format(kind.name), (texts,))
        return cursor.fetchall()


@pytest.mark.parametrize(("kind", "values"), CASES, ids=lambda case: getattr(case, "name", ""))
@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_source_writes_what_is_generated(endpoints, kind, values, data):
    texts = data.draw(st.lists(values, min_size=AT_ONCE, max_size=AT_ONCE))
    assert unlike(endpoints.postgres, kind, texts) == []


def test_twin_a_number_that_a_context_has_rounded_is_not_the_source_s(endpoints):
    rounded = format(Decimal(10**38 - 1).scaleb(-10), "f")  # to 28 digits, of which it has 38
    with pytest.raises(psycopg2.errors.NumericValueOutOfRange):
        unlike(endpoints.postgres, decimal_type(38, 10), [rounded])


def test_twin_an_infinity_is_no_value_of_a_numeric_with_a_precision(endpoints):
    with pytest.raises(psycopg2.errors.NumericValueOutOfRange):
        unlike(endpoints.postgres, decimal_type(10, 2), ["Infinity"])


def test_twin_a_double_as_python_writes_it_is_told_apart(endpoints):
    (kind,) = [kind for kind, _ in CASES if kind.name == "double precision"]
    assert unlike(endpoints.postgres, kind, ["1.0", "1e-05"]) == [("1.0", "1")]
