"""How many examples a property is tried with, where the number of the profile does not fit."""

from __future__ import annotations

from hypothesis import settings

_USUAL = 100
"""Hypothesis's own number: the profile `fixed` has it."""


def examples(usual: int) -> settings:
    """Try so many in the profile `fixed`, and as many more in another as that one asks for."""
    return settings(max_examples=usual * settings().max_examples // _USUAL)
