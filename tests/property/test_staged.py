"""Whatever runs follow each other: what waits stays, what was killed goes, a rollback goes back."""

from hypothesis import given
from hypothesis import strategies as st

from views.generations.history import ABORTED, PUBLISHED, STAGED, states_of
from views.generations.succession import (
    SinkGenerations,
    leftovers,
    line_of,
    next_generation,
    rollback_target,
    staged,
    to_retire,
)

RUNS = st.lists(st.sampled_from(["rebuild", "stage", "publish", "abort", "rollback", "killed"]))


KEPT = 3


class View:
    """A view in one sink, moved as the commands move it.

    `before` is what served until now, `line` what served one after the other, without what was
    rolled back from.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[int, str]] = []
        self.there: set[int] = set()
        self.serving: int | None = None
        self.before: int | None = None
        self.line: list[int] = []

    @property
    def held(self) -> SinkGenerations:
        return SinkGenerations(self.serving, frozenset(self.there))

    @property
    def waiting(self) -> int | None:
        return next(reversed(staged(states_of(self.steps))), None)

    def run(self, what: str) -> None:
        number = next_generation([self.held], states_of(self.steps))
        self.there -= set(leftovers(self.held, states_of(self.steps)))
        waiting = self.waiting
        match what:
            case "rebuild":
                self._publish(number)
            case "stage":
                self.there.add(number)
                self.steps.append((number, STAGED))
                self._abort(waiting)
            case "publish" if waiting is not None:
                self._publish(waiting)
            case "abort":
                self._abort(waiting)
            case "rollback" if self.serving is not None:
                target = rollback_target([self.held], states_of(self.steps), line_of(self.steps))
                served_before = [number for number in self.line[:-1] if number in self.there]
                assert target == next(reversed(served_before), None)
                if target is not None:
                    self.steps.append((target, PUBLISHED))
                    self.line = self.line[: self.line.index(target) + 1]
                    self.serving, self.before = target, None
            case "killed":
                self.there.add(number)
            case _:
                pass  # there is nothing to publish, or to go back from

    def _publish(self, number: int) -> None:
        self.there.add(number)
        self.serving, self.before = number, self.serving
        self.steps.append((number, PUBLISHED))
        self.line.append(number)
        states, line = states_of(self.steps), line_of(self.steps)
        self.there -= set(
            to_retire(self.held, previous=self.before, keep=KEPT, states=states, line=line)
        )

    def _abort(self, number: int | None) -> None:
        if number is not None:
            self.steps.append((number, ABORTED))
            self.there.discard(number)


@given(RUNS)
def test_what_waits_and_what_serves_are_always_there(runs) -> None:
    view = View()
    for what in runs:
        view.run(what)
        wanted = {view.serving, view.waiting, view.before} - {None}
        assert wanted <= view.there
        assert len(view.there) <= KEPT + 2, "what is kept, what waits, what was just killed"
        assert len(staged(states_of(view.steps))) <= 1
