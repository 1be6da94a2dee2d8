"""Time in ISO 8601: `changelog.contract.forms.moments` beside what capture reads."""

from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.forms.moments import date_text, moment_text, time_text
from changelog.contract.rows.text import days_of, micros_of


@given(st.integers(-2_440_588, 2_145_031_948))  # PostgreSQL's own: 4713 BC to 5874897
def test_a_date_reads_back(days):
    assert days_of(date_text(days).encode()) == days


@given(st.integers(-210_866_803_200_000_000, 2**63 - 2))
def test_a_moment_reads_back(micros):
    text = moment_text(micros)
    date, _, rest = text.partition("T")
    assert micros_of(f"{date} {rest.replace('+00:00', '+00')}".encode()) == micros
    assert moment_text(micros, zoned=False) == text.replace("+00:00", "")


def test_each_unit_has_its_digits():
    assert moment_text(1_500, digits=3) == "1970-01-01T00:00:01.5+00:00"
    assert moment_text(-1, digits=9, zoned=False) == "1969-12-31T23:59:59.999999999"
    assert moment_text(0) == "1970-01-01T00:00:00+00:00"
    assert time_text(86_399_999, digits=3) == "23:59:59.999"
    assert date_text(-719_529) == "0002-12-31 BC"
