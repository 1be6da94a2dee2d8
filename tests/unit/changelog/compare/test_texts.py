"""Texts of one value that are compared by value."""

from __future__ import annotations

import pytest

from changelog.compare.forms import CompareForm, TypeFamily
from changelog.compare.texts import jsonb_text, normal, shown


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1 mon -2 days +00:00:03.5", "P1M-2DT3.5S"),
        ("1 year 2 mons 3 days 04:05:06", "P1Y2M3DT4H5M6S"),
        ("14 mons", "P1Y2M"),
        ("-1 years", "P-1Y"),
        ("-04:05:06.7", "PT-4H-5M-6.7S"),
        ("00:00:00", "PT0S"),
        ("27:00:00", "PT27H"),
        ("7 days", "P1W"),
    ],
)
def test_an_interval_in_two_styles_is_one_value(one, other):
    form = CompareForm(TypeFamily.INTERVAL)
    assert normal(form, one) == normal(form, other) != one


@pytest.mark.parametrize(
    ("one", "other"),
    [("1 day", "24:00:00"), ("1 mon", "30 days"), ("", "PT0S"), ("P", "PT0S"), ("x", "PT0S"),
     ("00:00:00.000001", "PT0S"), ("PT0.0000001S", "PT0S")],
)  # fmt: skip
def test_other_intervals_differ(one, other):
    form = CompareForm(TypeFamily.INTERVAL)
    assert normal(form, one) != normal(form, other)


@pytest.mark.parametrize(
    ("bits", "number"),
    [("7f7fffff", "3.4028235e+38"), ("ff7fffff", "-3.4028235e+38"), ("00000001", "1e-45"),
     ("80000000", "-0.0"), ("3dcccccd", "0.1"), ("7f800000", "inf")],
)  # fmt: skip
def test_a_float_is_shown_by_the_fewest_digits_even_where_fewer_are_too_large(bits, number):
    assert shown(CompareForm(TypeFamily.REAL), bits) == number


@pytest.mark.parametrize(
    ("one", "other"),
    [("1" + "0" * 131071, "1e131071"), ("0." + "0" * 16382 + "1", "1e-16383"), ("1.50", "15e-1"),
     ("-0.0", "0"), ("0e-30000", "0")],
)  # fmt: skip
def test_a_number_with_and_without_an_exponent_is_one_value(one, other):
    form = CompareForm(TypeFamily.NUMERIC)
    assert normal(form, one) == normal(form, other)


def test_a_number_of_json_that_would_fill_the_memory_stays_as_it_is():
    assert jsonb_text('{"a": 1e999999999}') == '{"a": 1E+999999999}'
    assert jsonb_text('{"a": 1e3}') == '{"a": 1000}'
    form = CompareForm(TypeFamily.JSON)
    assert normal(form, "1e999999999") != normal(form, "1e999999998")


def test_digits_of_other_scripts_are_no_number():
    form = CompareForm(TypeFamily.NUMERIC)
    assert normal(form, "\uff11") != normal(form, "1")


def test_bytes_are_shown_apart_from_a_text_that_has_their_digits():
    form = CompareForm(TypeFamily.BYTES)
    assert (shown(form, "00ff"), shown(form, "=00ff")) == ("\\x00ff", "00ff")
