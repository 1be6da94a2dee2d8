"""The states of a generation and the moves between them; nothing here touches a sink.

    open --> sealed --> verified ------------> published <--> retired
      |         |           |                   ^
      v         v           +----> staged ------+
    failed   refuted        |         |
                            v         v
                          failed   aborted

A generation that failed or was refuted is never published. One that is not verified is published
only by somebody who says so (`rebuild-view --verify none`). A staged one is whole and waits: no
reader sees it before somebody publishes it, and no later run removes it. A retired one is no
longer what readers see but still exists, so a rollback publishes it again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from changelog.contract.base.errors import ChangelogError


class GenerationState(Enum):
    """The states of a generation, from open to retired."""

    OPEN = "open"
    SEALED = "sealed"
    VERIFIED = "verified"
    STAGED = "staged"
    PUBLISHED = "published"
    RETIRED = "retired"
    FAILED = "failed"
    REFUTED = "refuted"
    ABORTED = "aborted"


MOVES: dict[GenerationState, frozenset[GenerationState]] = {
    GenerationState.OPEN: frozenset({GenerationState.SEALED, GenerationState.FAILED}),
    GenerationState.SEALED: frozenset(
        {
            GenerationState.VERIFIED,
            GenerationState.REFUTED,
            GenerationState.FAILED,
            GenerationState.STAGED,
            GenerationState.PUBLISHED,
        }
    ),
    GenerationState.VERIFIED: frozenset(
        {GenerationState.STAGED, GenerationState.PUBLISHED, GenerationState.FAILED}
    ),
    GenerationState.STAGED: frozenset({GenerationState.PUBLISHED, GenerationState.ABORTED}),
    GenerationState.PUBLISHED: frozenset({GenerationState.RETIRED}),
    GenerationState.RETIRED: frozenset({GenerationState.PUBLISHED}),
    GenerationState.FAILED: frozenset(),
    GenerationState.REFUTED: frozenset(),
    GenerationState.ABORTED: frozenset(),
}
"""The legal moves; `Generation.publish` guards the one from SEALED to PUBLISHED."""


class IllegalMoveError(ChangelogError):
    """A move that a generation's state does not allow."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One complete build of a view."""

    view: str  # the view's name
    number: int  # grows by one with each build of the view
    state: GenerationState = GenerationState.OPEN  # where it is in its life

    def __post_init__(self) -> None:
        """Refuse a number that no generation has."""
        if self.number < 1:
            raise ValueError(f"generation numbers start at 1, not {self.number}")

    def seal(self) -> Generation:
        """Return the generation as sealed: nothing more is written to it."""
        return self._move(GenerationState.SEALED)

    def verify(self) -> Generation:
        """Return the generation as verified by an independent recomputation."""
        return self._move(GenerationState.VERIFIED)

    def refute(self) -> Generation:
        """Return the generation as refuted by the recomputation; it is never published."""
        return self._move(GenerationState.REFUTED)

    def fail(self) -> Generation:
        """Return the generation as failed in its build; it is never published."""
        return self._move(GenerationState.FAILED)

    def stage(self) -> Generation:
        """Return the generation as staged: complete, and waiting to be published or aborted."""
        return self._move(GenerationState.STAGED)

    def publish(self, *, unverified: bool = False) -> Generation:
        """Return the generation as published; one that is only sealed needs `unverified`."""
        if self.state is GenerationState.SEALED and not unverified:
            raise IllegalMoveError(
                f'generation {self.number} of view "{self.view}" is not verified',
                hint="verify it before it is published, or ask for --verify none",
            )
        return self._move(GenerationState.PUBLISHED)

    def retire(self) -> Generation:
        """Return the generation as retired: readers see a newer or older one."""
        return self._move(GenerationState.RETIRED)

    def _move(self, state: GenerationState) -> Generation:
        if state not in MOVES[self.state]:
            raise IllegalMoveError(
                f'generation {self.number} of view "{self.view}" is {self.state.value} '
                f"and cannot become {state.value}"
            )
        return replace(self, state=state)
