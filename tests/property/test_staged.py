"""Whatever runs follow each other: what waits stays, what was killed goes, a rollback goes back."""

from hypothesis import given
from hypothesis import strategies as st

from views.generations.history import ABORTED, PUBLISHED, STAGED, states_of
from views.generations.succession import (
    Held,
    leftovers,
    next_generation,
    published_late,
    rollback_target,
    staged,
    to_retire,
)

RUNS = st.lists(st.sampled_from(["rebuild", "stage", "publish", "abort", "rollback", "killed"]))


class View:
    """A view in one sink, moved as the commands move it; `before` is what served until now."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, str]] = []
        self.there: set[int] = set()
        self.serving: int | None = None
        self.before: int | None = None

    @property
    def held(self) -> Held:
        return Held(self.serving, frozenset(self.there))

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
                states, late = states_of(self.steps), published_late(self.steps)
                target = rollback_target([self.held], states, late)
                assert self.before is None or target == self.before
                if target is not None:
                    self.steps.append((target, PUBLISHED))
                    self.serving, self.before = target, None
            case "killed":
                self.there.add(number)
            case _:
                pass  # there is nothing to publish, or to go back from

    def _publish(self, number: int) -> None:
        self.there.add(number)
        self.serving, self.before = number, self.serving
        self.steps.append((number, PUBLISHED))
        states, late = states_of(self.steps), published_late(self.steps)
        self.there -= set(
            to_retire(self.held, previous=self.before, keep=2, states=states, late=late)
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
        assert len(view.there) <= 4, "what serves, what served, what waits, what was just killed"
        assert len(staged(states_of(view.steps))) <= 1
