"""One view of a project: built, proved, published, gone back to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from changelog.contract.base.errors import ViewError
from replay.api.reach import Moment
from views.api.prove import prove, recorded
from views.api.runs import From, Verify, chosen, one, rebuilt, stages
from views.api.values import Diff, Generation, Generations, Proof, RowOrigin, ViewRun
from views.base.config import RebuildSettings
from views.explain.explain import explain, key_of
from views.generations.history import GenerationHistory, last_states
from views.generations.served import served_of
from views.project.catalog import catalog_of
from views.project.spec import ViewSpec
from views.rebuild.diff import diff
from views.rebuild.rollback import roll_back
from views.rebuild.staged import abort_staged, publish_staged


@dataclass(frozen=True, slots=True)
class View:
    """A view of a project.

    Attributes:
        name: its name.
    """

    name: str
    _settings: RebuildSettings = field(repr=False)

    def rebuild(
        self, *, verify: Verify = "full", source: From | None = None, as_of: Moment | None = None
    ) -> ViewRun:
        """Build a generation, prove it, and let readers see it.

        Args:
            verify: how much is proved before.
            source: what the rows are made of; see `Project.rebuild`.
            as_of: an older LSN, time or frontier that its rows are to be true at.

        Raises:
            RefutedError: the proof found rows that differ; the generation before serves.
            VerdictError: the log cannot give the exact state.
            LockedError: another process rebuilds the view.
            ChangelogError: another reason; the message says which.
        """
        return self._built(chosen(self._settings, verify, source, as_of))

    def stage(self, *, verify: Verify = "full", as_of: Moment | None = None) -> ViewRun:
        """Build and prove a generation that nobody sees before `publish`; raises as `rebuild`."""
        return self._built(replace(chosen(self._settings, verify, None, as_of), stage=True))

    def diff(self, generation: int | None = None) -> Diff:
        """Compare a generation with the one that serves; the staged one when left out.

        Raises:
            ChangelogError: nothing is staged or serves, or the two cannot be compared.
        """
        compared = diff(self._spec(), self._settings, stages(), generation=generation)
        return Diff(compared)

    def publish(self, generation: int | None = None) -> ViewRun:
        """Publish the staged generation.

        Raises:
            ChangelogError: nothing is staged, another number is, or a sink does not move.
        """
        spec = self._spec()
        return one(publish_staged([spec], self._settings, stages(), generation=generation))

    def abort(self) -> int:
        """Remove the staged generation; return its number.

        Raises:
            ChangelogError: nothing is staged.
        """
        return abort_staged([self._spec()], self._settings, stages())[self.name]

    def rollback(self, generation: int | None = None) -> ViewRun:
        """Publish the previous generation again, or the one of a number.

        Raises:
            ChangelogError: there is none, or the last move was a rollback and no number is there.
        """
        return one(roll_back([self._spec()], self._settings, stages(), generation=generation))

    def serves(self, sink: str | None = None) -> str:
        """Return the address of the generation that serves.

        Args:
            sink: its kind; the view's first when left out.

        Raises:
            ViewError: nothing serves there.
        """
        served = served_of(self._spec(), self._settings.project, None)
        name = sink or next(iter(served.sinks))
        if name not in served.sinks:
            raise ViewError(
                f'view "{self.name}" has no sink {name}', hint=f"it has {', '.join(served.sinks)}"
            )
        number = served.sinks[name].published()
        if number is None:
            raise ViewError(f'of view "{self.name}" nothing serves yet in {name}')
        address = served.sinks[name].address(number)
        return str(address.location.get("path", address.shown()))

    def generations(self) -> Generations:
        """Return the generations that the history knows, each at its last step."""
        rows = GenerationHistory(self._settings.warehouse).rows([self.name])
        last_rows = sorted(last_states(rows).values(), key=lambda row: row.generation)
        return Generations(self.name, tuple(map(Generation.of, last_rows)))

    def proof(self, generation: int | None = None) -> Proof:
        """Return the proof on record of a generation, the newest that has one when left out.

        Raises:
            ViewError: there is none.
        """
        return recorded(self._spec(), self._settings, generation)[0]

    def prove(self) -> Proof:
        """Compare the serving generation with the log, at the frontier of its build.

        Of several sinks the first that differs is returned. A mismatch raises nothing: it is
        in what is returned.

        Raises:
            ViewError: nothing serves, or the file has changed since.
            VerdictError: the log cannot give that state any more.
        """
        proofs = prove(self._spec(), self._settings)
        return next((proof for proof in proofs if proof.verified is not True), proofs[0])

    def explain(self, key: object) -> RowOrigin:
        """Trace the row of a key to its records, at the newest frontier.

        Args:
            key: its value; of several columns a tuple in their order, or a mapping by column.

        Raises:
            ChangelogError: there is no such row, or it cannot be traced.
        """
        spec = self._spec()
        return RowOrigin(explain(spec, key_of(spec, key), self._settings))

    def _spec(self) -> ViewSpec:
        return catalog_of(self._settings.project).load(self.name)

    def _built(self, settings: RebuildSettings) -> ViewRun:
        (run,) = rebuilt([self._spec()], settings)
        return run
