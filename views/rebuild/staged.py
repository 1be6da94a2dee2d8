"""Publish what was staged, or remove it: the second half of `rebuild-view --stage`.

Nothing is built here and Spark is not needed. Every sink of every view is asked for its whole
staged generation before the first one moves; then they move as at the end of a rebuild, all of
them or none. What a kill leaves is finished by the next run (`views.generations.swap.settle`): a
sink that serves a staged generation shows that its publication had begun.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from changelog.attestation.envelope import Signer
from changelog.attestation.statement import altered
from changelog.contract.base.errors import ChangelogError, RefutedError
from changelog.runtime.progress.steps import Steps
from views.base.config import RebuildSettings, VerifyMode
from views.base.failure import explained
from views.base.progress import Stages
from views.certificates.certify import served_ranges, signer_of, uncertified
from views.certificates.statement import added
from views.certificates.store import CertificateStore
from views.generations.history import PUBLISHED, GenerationHistory, HistoryRow
from views.generations.lock import LockPatience, locked, others_of
from views.generations.place import LockPlace, place_for
from views.generations.served import MakeServed, Peers, Served, peers_of, served_of
from views.generations.staging import NothingStagedError, take_away
from views.generations.succession import staged
from views.generations.swap import retire, settle, swap
from views.project.spec import ViewSpec
from views.rebuild.read_back import check_all_whole
from views.rebuild.result.report import ViewResult

log = logging.getLogger("changelog.views")


class UnverifiedError(ChangelogError):
    """A staged generation was not verified, and verification was not switched off."""


@dataclass(frozen=True, slots=True)
class _StagedTarget:
    """The generation of a view that is to be published; `before` served until now."""

    spec: ViewSpec
    served: Served
    row: HistoryRow
    before: int | None
    is_done: bool


def publish_staged(
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    stages: Stages,
    *,
    generation: int | None = None,
    make_served: MakeServed = served_of,
    stop: Callable[[], bool] = lambda: False,
) -> list[ViewResult]:
    """Publish the staged generation of each view, in all sinks: all views or none.

    `settings`: of the run; verification that is set to none lets an unverified one pass.
    `generation`: the number that is meant, None for whatever is staged. `make_served`: gives the
    sinks of a view. `stop`: tells whether to wait no longer for another run of one of them.

    Raises:
        LockedError: another run works on one of them.
        NothingStagedError: of one nothing is staged, or another generation.
        UnverifiedError: one was not verified.
        SinkError: a sink does not hold it whole, or does not move; the others are moved back.
        ConfigurationError: the key that signs certificates cannot be used.
        RefutedError: a sink has other rows than when a certificate was prepared.
    """
    history = GenerationHistory(settings.warehouse)
    place = place_for(settings)
    with locked(
        place, [spec.name for spec in specs], LockPatience.of(settings.runs.wait_seconds, stop)
    ):
        with stages.stage("settle", "what is staged"):
            view_servings = [(spec, make_served(spec, settings.project, None)) for spec in specs]
            steps = stages.steps(2 * _sinks(served for _, served in view_servings))
            peers = peers_of(settings.project, make_served)
            targets = [
                _target(spec, served, history, generation, place, steps=steps, peers=peers)
                for spec, served in view_servings
            ]
            if settings.verify is not VerifyMode.NONE:
                _require_verified(targets)
            to_move = [target for target in targets if not target.is_done]
            targets_to_move = [(target.served, target.row.generation) for target in to_move]
            steps.more(_sinks(served for served, _ in targets_to_move))
            check_all_whole(targets_to_move, history, settings.verify, steps)
            to_move = _noted_together(to_move, history)
            facts = {target.spec.name: _facts(target, settings) for target in targets}
            signer = signer_of(settings) if any(facts.values()) else None
        with stages.stage("publish", "publish every sink at once"):
            seconds = swap(targets_to_move, confirm=place.confirm, steps=stages.steps())
        with stages.stage("record", "write the history"):
            _record_published(to_move, history, seconds)
        with stages.stage("retire", "remove old generations"):
            steps = stages.steps(_sinks(target.served for target in to_move))
            _retire(to_move, history, settings.rebuild.keep, steps)
        results = []
        for target in targets:
            switch_seconds = None if target.is_done else seconds
            row = target.row.again(sinks=target.spec.sinks, switch_seconds=switch_seconds)
            result = ViewResult.of_row(row)
            if certificate := facts[target.spec.name]:
                with stages.stage("certify", f"{target.spec.name}: its certificate"):
                    result = _certified(result, certificate, settings, signer)
            results.append(result)
    return results


def abort_staged(
    specs: Sequence[ViewSpec],
    settings: RebuildSettings,
    stages: Stages,
    *,
    make_served: MakeServed = served_of,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, int]:
    """Remove the staged generation of each view from all its sinks; returns their numbers.

    Raises LockedError: another run works on one of them; NothingStagedError: of one nothing is
    staged.
    """
    history = GenerationHistory(settings.warehouse)
    gone = {}
    place = place_for(settings)
    with locked(
        place, [spec.name for spec in specs], LockPatience.of(settings.runs.wait_seconds, stop)
    ):
        servings = [make_served(spec, settings.project, None) for spec in specs]
        steps = stages.steps(_sinks(servings))
        peers = peers_of(settings.project, make_served)
        for served in servings:
            with stages.looking("what is staged"):
                settle(served, history, others_of(place, served.view, builds=True), steps, peers)
            numbers = staged(history.states(served.view))
            if not numbers:
                raise nothing_staged(served.view)
            with stages.stage("abort", f"{served.view}: remove generation {numbers[-1]}"):
                take_away(served, history, numbers, note="aborted", steps=steps)
            gone[served.view] = numbers[-1]
    return gone


def nothing_staged(view: str) -> NothingStagedError:
    """Return the error for a view of which no generation waits."""
    return NothingStagedError(
        f'view "{view}" has no staged generation', hint=f"`rebuild-view {view} --stage` makes one"
    )


def _target(
    spec: ViewSpec,
    served: Served,
    history: GenerationHistory,
    generation: int | None,
    place: LockPlace,
    *,
    steps: Steps,
    peers: Peers,
) -> _StagedTarget:
    waiting = staged(history.states(spec.name))
    finished = settle(served, history, others_of(place, spec.name, builds=True), steps, peers)
    is_done = finished is not None and finished in waiting
    number = finished if is_done else next(reversed(staged(history.states(spec.name))), None)
    if number is None:
        raise nothing_staged(spec.name)
    if generation is not None and generation != number:
        raise NothingStagedError(
            f'generation {generation} of view "{spec.name}" is not staged, generation {number} is',
            hint="--rollback goes back to one that was published before",
        )
    *_, row = history.rows([spec.name], generation=number)
    serving = [generations.published for generations in served.held_without_listing(steps).values()]
    return _StagedTarget(spec, served, row, max((n for n in serving if n), default=None), is_done)


def _sinks(servings: Iterable[Served]) -> int:
    return sum(len(served.sinks) for served in servings)


def _require_verified(targets: Sequence[_StagedTarget]) -> None:
    for target in targets:
        row = target.row
        # Of a view in Python the inputs are verified: reports without a verdict of their own.
        if not (row.verified or row.has_equal_inputs or target.is_done):
            raise UnverifiedError(
                f'generation {row.generation} of view "{row.view}" was staged without being '
                "verified",
                hint="stage it again without --verify none, or publish it with --verify none",
            )


def _noted_together(
    targets: Sequence[_StagedTarget], history: GenerationHistory
) -> list[_StagedTarget]:
    """Put on record which generations move together: the next run then ends what is cut off."""
    together = {target.spec.name: target.row.generation for target in targets}
    if len(together) < 2:  # noqa: PLR2004 - one moves alone
        together = {}
    noted = [replace(target, row=target.row.again(together=together)) for target in targets]
    pairs = zip(targets, noted, strict=True)
    history.append(after.row for before, after in pairs if before.row.together != together)
    return noted


def _record_published(
    targets: Sequence[_StagedTarget], history: GenerationHistory, seconds: float
) -> None:
    rows = []
    for target in targets:
        before = target.before
        follows = f"in place of generation {before}" if before else "nothing served before"
        note = "; ".join(filter(None, [f"was staged, {follows}", target.row.note]))
        rows.append(
            target.row.again(
                state=PUBLISHED, note=note, sinks=target.spec.sinks, switch_seconds=seconds
            )
        )
    try:
        history.append(rows)
    except ChangelogError as error:
        log.warning("published, but not recorded: %s", error)  # the next run adds it


def _facts(target: _StagedTarget, settings: RebuildSettings) -> dict[str, Any] | None:
    """Return the facts of a generation that was staged with a certificate and has none yet.

    Raises RefutedError: they are altered, or a sink has other rows than it had then; SinkError: a
    sink cannot be read.
    """
    store = CertificateStore(settings.warehouse, target.spec.name)
    facts = store.aside(target.row.generation)
    if facts is None or target.row.generation in store.generations():
        return None
    try:
        definition, entries = facts["definition"], facts["sinks"]
        columns = [(column["name"], column["type"]) for column in definition["columns"]]
        digests = {entry["sink"]: entry["digest"] for entry in entries}
        for name, sink in target.served.sinks.items():
            address = sink.address(target.row.generation)
            if added(served_ranges(address, columns, definition["key"])) != digests[name]:
                raise RefutedError(
                    f'view "{target.spec.name}", {name}: the rows are not those that were staged',
                    hint="something else has written there; stage the view again",
                )
    except (KeyError, TypeError) as error:
        raise altered(store.place_aside, repr(error)) from error
    return facts


def _certified(
    result: ViewResult, facts: Mapping[str, Any], settings: RebuildSettings, signer: Signer | None
) -> ViewResult:
    """Write the certificate of a generation that has been published; an error is the result's."""
    predicate = {**facts, "published": datetime.now(UTC).isoformat()}
    try:
        place = CertificateStore(settings.warehouse, result.view).add(predicate, signer)
    except Exception as error:  # noqa: BLE001 - readers see the generation, whatever it is
        return replace(result, error=uncertified(result.view, "published", error))
    return replace(result, certificate_file=place)


def _retire(
    targets: Sequence[_StagedTarget], history: GenerationHistory, keep: int, steps: Steps
) -> None:
    for target in targets:
        try:
            retire(target.served, history, previous=target.before, keep=keep, steps=steps)
        except Exception as error:  # noqa: BLE001 - it only makes room; the next run does it
            log.warning('view "%s": %s', target.spec.name, explained(error, "removing"))
