"""Views that cannot be planned are found without planning each one alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from changelog.contract.base.errors import ChangelogError, UnavailableError, ViewError
from changelog.contract.rows.choices import ChoicesError
from views.project.spec import ViewSpec
from views.project.sql import parse_sql_view
from views.rebuild.plan.plannable import _parted


def spec_of(name: str) -> ViewSpec:
    return parse_sql_view(name, Path(f"{name}.sql"), "-- key: id\nSELECT id FROM things")


@pytest.mark.parametrize("bad", [set(), {0}, {316}, {3, 200}])
def test_a_few_views_that_cannot_be_planned_are_found_by_halves(bad: set[int]) -> None:
    specs = [spec_of(f"v{number}") for number in range(317)]
    wrong = {f"v{number}" for number in bad}
    asked = []

    def plan_of(some: Any) -> Any:
        asked.append(len(some))
        if found := [spec.name for spec in some if spec.name in wrong]:
            raise ViewError(f"{found[0]} is not captured")

    good, errors = _parted(specs, cast("Any", plan_of))
    assert {spec.name for spec in good} == {spec.name for spec in specs} - wrong
    assert set(errors) == wrong
    assert len(asked) <= 2 + 18 * len(bad)


@pytest.mark.parametrize("error", [UnavailableError("away"), ChoicesError("of no column")])
def test_a_server_that_is_away_or_a_setting_that_is_wrong_is_no_view_s_fault(
    error: ChangelogError,
) -> None:
    def plan_of(some: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        _parted([spec_of("a"), spec_of("b")], plan_of)
