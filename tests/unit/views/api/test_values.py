"""What is told of views shows itself, and what failed is raised: views.api."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from changelog.contract.base.errors import ConfigurationError, RefutedError, VerdictError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier, FrontierRecord
from replay.api.values import LogFrontier
from replay.cut.asof import AsOf
from views.api.project import Project
from views.api.runs import chosen, sound
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.rebuild.result.report import ViewResult

FRONTIER = Frontier(slot="s", epoch=1, lsn=Lsn(24), ts_us=0)
RESULT = ViewResult(
    view="delays", generation=3, frontier=FRONTIER, rows=1234, verified=True, published=True,
    seconds={"write": 1.25, "verify": 0.5, "total": 1.8}, sinks=("delta", "search"),
)  # fmt: skip


def test_the_worst_error_of_a_run_is_raised():
    refuted, late = RefutedError("rows differ"), VerdictError("too late")
    failed = [ViewResult(view="a", error=late), RESULT, ViewResult(view="b", error=refuted)]
    with pytest.raises(RefutedError):
        sound(failed)
    assert sound([RESULT]) == [RESULT]


def test_what_is_asked_for_is_checked_before_anything_is_done(tmp_path):
    (tmp_path / "changelog.toml").write_text(
        'kafka.brokers = "b:1"\nregistry.url = "http://user:hidden@r"\n'
        'kafka.options = { "sasl.password" = "hidden" }\n'
    )
    with pytest.raises(ConfigurationError, match="is not there"):
        Project.open(tmp_path / "elsewhere" / "changelog.toml")
    project = Project.open(tmp_path / "changelog.toml")
    assert project.root == tmp_path
    assert "hidden" not in repr(project) + repr(project.view("v")) + repr(project.log)
    settings: RebuildSettings = project._settings
    asked = chosen(settings, "changed", "refresh", "0/18")
    assert (asked.verify, asked.source) == (VerifyMode.CHANGED, RowsSource.REFRESH)
    assert asked.as_of is not None
    with pytest.raises(ConfigurationError, match=r"verify: there is no 'most' .* none, sample, ch"):
        project.view("v").rebuild(verify="most")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"source: there is no 'top' .* start, checkpoint"):
        project.view("v").rebuild(source="top")  # type: ignore[arg-type]


def test_a_run_takes_every_moment_that_a_table_takes(tmp_path):
    (tmp_path / "changelog.toml").write_text(
        'kafka.brokers = "b:1"\nregistry.url = "http://r"\ncapture.slot = "s"\n'
    )
    project = Project.open(tmp_path)
    newest = LogFrontier.of(FrontierRecord(FRONTIER, 0, 0))
    for moment, asked in (
        (newest, AsOf("0/18", lsn=Lsn(24), epoch=1)),
        (Lsn(24), AsOf("0/18", lsn=Lsn(24))),
        (datetime(1970, 1, 1, tzinfo=UTC), AsOf("1970-01-01T00:00:00+00:00", ts_us=0)),
        ("0/18", AsOf("0/18", lsn=Lsn(24))),
    ):
        assert chosen(project._settings, "full", None, moment).as_of == asked
    with pytest.raises(ConfigurationError, match="is no moment of the log"):
        project.view("v").stage(as_of=3)  # type: ignore[arg-type]
    of_others = LogFrontier.of(FrontierRecord(replace(FRONTIER, slot="other"), 0, 0))
    with pytest.raises(ConfigurationError, match='of slot "other", the project\'s log of slot "s"'):
        project.view("v").rebuild(as_of=of_others)
