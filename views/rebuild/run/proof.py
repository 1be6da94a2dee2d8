"""The proofs of a run: rows to be published or sent are computed by the verifier too."""

from __future__ import annotations

from collections.abc import Sequence

from changelog.contract.base.errors import ChangelogError, RefutedError, VerdictError
from replay.result.state import States
from views.base.config import VerifyMode
from views.base.failure import RebuildError
from views.generations.history import CHANGES
from views.rebuild.one_view.certify import Certifier
from views.rebuild.one_view.view_build import ViewBuild
from views.rebuild.run.run import RunContext, only_warned
from views.verify.compare.report import VerifyReport


class RunProof:
    """Verifies the views of a run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    def verify(self, certifier: Certifier, replay: States, builds: Sequence[ViewBuild]) -> None:
        """Verify views; a reason against publishing becomes the view's failure."""
        if self._run.settings.verify is VerifyMode.NONE:
            return
        for build in builds:
            with self._run.answerable(build):
                build.reports = self._reports(certifier, build)
                error = judged(build)
                if error is not None:
                    require_exact(replay, build)
                    raise error
                if build.verified and build.delta is None:
                    build.generation = build.generation.verify()
        with self._run.stage("keep", "what was proved"), only_warned("keeping what was proved"):
            certifier.keep()

    def _reports(self, certifier: Certifier, build: ViewBuild) -> dict[str, VerifyReport]:
        reports: dict[str, VerifyReport] = {}
        if build.delta is not None:
            text = f"{build.spec.name}: verify {build.delta.table.num_rows:,} keys"
            with self._run.stage("verify", text, build.spec.name):
                rows = build.delta.proof_request()
                return {CHANGES: certifier.report(build.spec, build.columns, rows)}
        for name, address in build.addresses.items():
            text = f"{build.spec.name}: verify {name} ({self._run.settings.verify.value})"
            with self._run.stage("verify", text, build.spec.name):
                reports[name] = certifier.report(build.spec, build.columns, address)
        return reports


def require_exact(replay: States, build: ViewBuild) -> None:
    """Check that the log was still exact when the verifier read it, which is later.

    Raises VerdictError: the log had begun to lose what the verifier read, so nothing is refuted.
    """
    try:
        replay.recheck()
    except VerdictError:
        build.reports = {}
        raise


def judged(build: ViewBuild) -> ChangelogError | None:
    """Return the reason why verification forbids publishing or serving a generation, or None.

    A Python view never gets a verdict of its own: its inputs were compared, which can refute it.
    """
    name = build.spec.name
    try:
        for sink, report in build.reports.items():
            if sink == CHANGES:
                report.raise_on_mismatch(
                    hint="the changed rows are not sent: readers keep what they had"
                )
            elif build.delta is not None:
                report.raise_on_mismatch(serving=sink)
            else:
                report.raise_on_mismatch()
    except RefutedError as error:
        return error
    if build.verified is None and build.spec.sql is not None:
        notes = [note for report in build.reports.values() for note in report.notes]
        return RebuildError(
            f'view "{name}" cannot be verified: {"; ".join(dict.fromkeys(notes)) or "no reason"}',
            hint="--verify none publishes it unproved",
        )
    return None
