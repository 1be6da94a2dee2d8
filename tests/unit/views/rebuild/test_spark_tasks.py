"""Tasks of Spark's as they are told from one look to the next."""

from views.base.pace import Pace
from views.rebuild.run.spark_tasks import TaskProgress, Tasks


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def told_of(looks):
    said, clock = list[str](), Clock()
    told = TaskProgress(said.append, lambda *words: Pace(*words, clock=clock))
    for tasks in looks:
        told.look(tasks)
        clock.now += 2.0
    return said


def test_rate_and_time_left_are_those_since_a_stage_was_first_seen():
    one, two = frozenset({1}), frozenset({2, 3})
    said = told_of([Tasks(one, 4, 20), Tasks(one, 8, 20), Tasks(two, 0, 300), Tasks(two, 60, 300)])
    assert said == [
        "Spark: 4 of at most 16 tasks, 2/s, 6 s left",
        "Spark: 60 of at most 300 tasks, 30/s, 8 s left",
    ]


def test_nothing_is_told_where_nothing_runs_or_moves():
    one = frozenset({1})
    assert told_of([Tasks(frozenset(), 0, 0)] * 3 + [Tasks(one, 0, 4)] * 3) == []
