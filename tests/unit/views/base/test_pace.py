"""How far a long piece of work is: rate and time left, told now and then."""

from __future__ import annotations

import io
import logging

from rich.console import Console

from views.base.pace import Pace
from views.base.progress import Stages, StageSteps


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_time_left_are_told_twice_a_second_at_most():
    told, clock = list[str](), Clock()
    pace = Pace(told.append, 'topic "t": read', 4_000_000, "records", clock=clock)
    pace.add(10)
    clock.now += 2
    pace.add(999_990)
    pace.add(500_000)
    clock.now += 1
    pace.add(500_000, "3 of 4 partitions,")
    pace.add(0)

    assert told == [
        'topic "t": read 1,000,000 of at most 4,000,000 records, 500,000/s, 6 s left',
        "3 of 4 partitions, 2,000,000 of at most 4,000,000 records, 666,667/s, 3 s left",
    ]


def test_a_log_has_a_line_every_ten_seconds(caplog, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("views.base.progress.time.monotonic", clock)
    caplog.set_level(logging.INFO, "changelog.views")
    stages = Stages(Console(file=io.StringIO()))
    with stages.stage("verify", "proof"):
        for second in range(25):
            clock.now = 100.0 + second
            stages.tell(f"at {second}")
    assert caplog.messages == ["proof: at 10", "proof: at 20", "proof: 24.0 s"]


def test_a_terminal_shows_how_far_the_stage_is():
    out = io.StringIO()
    stages = Stages(Console(file=out, force_terminal=True, width=100))
    with stages.shown(), stages.stage("verify", "proof"):
        stages.tell("3 of 4 partitions")
        assert stages._shown is not None
        stages._shown.refresh()
        assert "proof: 3 of 4 partitions" in out.getvalue()
    assert out.getvalue().rstrip().splitlines()[-1].count("3 of 4") == 0


def test_steps_of_a_stage_tell_how_many_are_done_the_time_left_and_the_rate():
    told, clock = list[str](), Clock()
    steps = StageSteps(told.append, 3, clock=clock)
    steps.begin("v in delta")
    clock.now += 2
    steps.done()
    steps.more(1)
    steps.begin("v in search")
    assert told == [
        "0 of 3: v in delta",
        "1 of 3, 4 s left, 0.5/s: v in delta",
        "1 of 4, 6 s left, 0.5/s: v in search",
    ]


def test_what_is_looked_at_before_a_stage_is_shown_while_it_lasts(caplog):
    caplog.set_level(logging.INFO, "changelog.views")
    out = io.StringIO()
    stages = Stages(Console(file=out, force_terminal=True, width=60))
    with stages.shown():
        with stages.looking("what serves"):
            stages.steps(2).begin("v in delta")
            assert stages._shown is not None
            stages._shown.refresh()
            assert "what serves: 0 of 2: v in delta" in out.getvalue()
        assert stages._shown.tasks == []
    elsewhere = io.StringIO()
    stages = Stages(Console(file=elsewhere))
    with stages.shown(), stages.looking("what serves"):
        stages.steps(2).begin("v in delta")
    assert (elsewhere.getvalue(), caplog.messages) == ("", [])
