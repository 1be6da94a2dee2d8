"""The end of a run: readers move to the proved generations, or these are staged.

Where somebody follows the views, their new generations are first brought to where readers are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from changelog.contract.base.errors import ChangelogError
from replay.result.state import States
from replay.spark.files import Files
from replay.store.stored import StoredStates
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.certificates.certify import served_ranges, signer_of, uncertified
from views.certificates.facts import facts_of
from views.certificates.store import CertificateStore
from views.generations.history import PUBLISHED, SEALED, STAGED
from views.generations.lock import advancing, others_of, reserve
from views.generations.staging import take_away
from views.generations.succession import next_generation, staged
from views.generations.swap import retire, swap
from views.generations.sweep import sweep
from views.project.spec import ViewSpec
from views.rebuild.one_view.view_build import ViewBuild
from views.rebuild.plan.plan import Plan, store_of
from views.rebuild.result.report import ViewResult
from views.rebuild.run.run import RunContext, only_warned
from views.rebuild.takeover import Takeover, UnpublishedBase

log = logging.getLogger("changelog.views")


@dataclass(frozen=True, slots=True)
class Brought:
    """Unpublished generations at a later frontier."""

    builds: Sequence[ViewBuild]  # of the views whose generation is there, or has failed on its way
    failed: Sequence[ViewResult]  # the results of those that could not begin
    states: States | None  # what the first are made of; None without any


Bring = Callable[[RebuildSettings, Mapping[str, UnpublishedBase], Sequence[ViewSpec]], Brought]
"""Brings unpublished generations to the newest frontier by a run with settings of its own."""


class Publication:
    """Publishes the generations of a run, or puts them aside."""

    def __init__(self, run: RunContext, bring: Bring) -> None:
        self._run, self._bring = run, bring

    def put_aside(self, replay: States, builds: Sequence[ViewBuild]) -> None:
        """Stage the generations in place of earlier staged ones; no reader moves."""
        with self._run.stage("stage", "put aside"):
            generations = [build.generation.stage() for build in builds]
            # This row is what keeps them from being taken for what a killed run left.
            self._run.record(STAGED, builds, Plan(replay.cut.record, replay.cut), replay)
            for build, generation in zip(builds, generations, strict=True):
                build.generation, build.staged = generation, True
        for build in builds:
            with only_warned("removing what was staged before"):
                *older, newest = staged(self._run.history.states(build.spec.name))
                note = f"replaced by generation {newest}"
                take_away(build.served, self._run.history, older, note=note)
                build.replaced = tuple(older)
        if self._run.settings.certificate:
            self._certify(replay, builds)

    def publish(self, replay: States, builds: Sequence[ViewBuild]) -> None:
        """Move readers to generations that are whole and proved, and record it."""
        plan = Plan(replay.cut.record, replay.cut)
        self._run.record(SEALED, builds, plan, replay)
        settings = self._run.settings
        goes_back = settings.as_of is not None or settings.archive is not None
        follows = not (self._run.is_follower or goes_back)
        takeover = Takeover(self._run.settings, self._run.history, self._brought)
        if follows:
            # Most of the way is made while the follower goes on.
            takeover.bring_near(self._catching_up(builds))
        with self._run.held_still():
            if follows:
                takeover.bring(self._catching_up(builds))
            # Told again: by its place in the history a swap that is cut off is known.
            whole = [build for build in builds if build.error is None]
            if any(build.brought or (build.previous or 0) > build.number for build in whole):
                self._run.record(SEALED, whole, plan, replay)
            with self._run.stage("publish", "publish every sink at once"):
                if self._run.settings.together:
                    self._swap(whole)
                else:
                    for build in whole:
                        with self._run.answerable(build):
                            self._swap([build])
            published = [build for build in whole if build.published]
            with self._run.stages.stage("record", "write the history"):
                try:
                    self._run.record(PUBLISHED, published, plan, replay)
                except ChangelogError as error:
                    # Readers see the new generations: this is no failure of the rebuild. The next
                    # run finds the row `sealed` and what serves, and adds what is missing.
                    log.warning("published, but not recorded: %s", error)
            if self._run.settings.certificate:
                self._certify(replay, published)

    def _certify(self, replay: States, builds: Sequence[ViewBuild]) -> None:
        """Write the certificates of generations, which stay as they are if one fails.

        Of staged ones only the facts are kept, until they are published.
        """
        for build in builds:
            name, states = build.spec.name, build.brought or replay
            done = "staged" if build.staged else "published"
            try:
                with self._run.stages.stage("certify", f"{name}: its certificate", name):
                    build.certificate_file = self._certificate(build, states)
            except Exception as error:  # noqa: BLE001 - readers see the generation, whatever it is
                build.uncertified = uncertified(name, done, error)

    def _certificate(self, build: ViewBuild, states: States) -> str:
        """Write the certificate of a generation and return its place, empty if it is staged."""
        sinks = {}
        for name, sink in build.served.sinks.items():
            address = sink.address(build.number)
            report = build.reports.get(name) if build.brought is None else None
            proof = None if report is None else report.certificate
            sinks[name] = address, served_ranges(address, build.columns, build.spec.key, proof)
        facts = facts_of(
            spec=build.spec,
            generation=build.number,
            run=self._run.id,
            fingerprint=build.definition,
            columns=build.columns,
            origin=build.origin,
            states=states,
            reports=build.reports,
            sinks=sinks,
        )
        store = CertificateStore(self._run.settings.warehouse, build.spec.name)
        if build.staged:
            store.put_aside(facts)
            return ""
        return store.add(facts, signer_of(self._run.settings))

    def _catching_up(self, builds: Sequence[ViewBuild]) -> list[ViewBuild]:
        return [b for b in builds if b.error is None and self._run.catches_up(b.spec)]

    def _brought(self, builds: Sequence[ViewBuild]) -> None:
        """Bring unpublished generations to the newest frontier, as a follower would."""
        place = self._run.place
        verify = self._run.settings.verify
        changed = VerifyMode.NONE if verify is VerifyMode.NONE else VerifyMode.CHANGED
        settings = replace(
            self._run.settings, source=RowsSource.REFRESH, forward=True, verify=changed, looks=False
        )
        bases = {}
        with self._run.held_still():
            for build in builds:
                own = build.generation.number
                others = others_of(place, build.spec.name, builds=True)
                held_by_sink, states = (
                    build.served.held(),
                    self._run.history.states(build.spec.name),
                )
                number = next_generation(list(held_by_sink.values()), states, others.dead | {own})
                reserve(place, build.spec.name, [own, number])
                bases[build.spec.name] = UnpublishedBase(own, number)
        with advancing(place):
            brought = self._bring(settings, bases, [build.spec for build in builds])
        errors = {result.view: result.error for result in brought.failed}
        there = {build.spec.name: build for build in brought.builds}
        errors |= {name: build.error for name, build in there.items()}
        for build in builds:
            with self._run.answerable(build):
                if (error := errors[build.spec.name]) is not None:
                    raise error
                assert brought.states is not None  # noqa: S101 - else there is an error
                build.bring(there[build.spec.name], brought.states)

    def _swap(self, builds: Sequence[ViewBuild]) -> None:
        """Move the readers of the views in all their sinks, or of none."""
        none = self._run.settings.verify is VerifyMode.NONE
        published = [
            build.generation.publish(unverified=none or build.spec.sql is None) for build in builds
        ]
        seconds = swap(
            [(build.served, build.generation.number) for build in builds],
            confirm=self._run.place.confirm,
            steps=self._run.stages.steps(),
        )
        for build, generation in zip(builds, published, strict=True):
            build.generation, build.published = generation, True
            build.switch_seconds = seconds

    def retire(self, replay: States, builds: Sequence[ViewBuild]) -> None:
        """Remove generations that are no longer kept, and outdated files of the warehouse."""
        place, keep = self._run.place, self._run.settings.rebuild.keep
        with self._run.stages.stage("retire", "remove old generations"), self._run.held_still():
            steps = self._run.stages.steps(sum(len(build.served.sinks) for build in builds))
            for build in builds:
                name = build.spec.name
                with only_warned("removing old generations", of=f'view "{name}": '):
                    others = others_of(place, name, builds=not self._run.is_follower)
                    retire(
                        build.served,
                        self._run.history,
                        previous=build.previous,
                        keep=keep,
                        spared=others.spared,
                        steps=steps,
                    )
            with only_warned("putting the history together"):
                self._run.history.tidy()
            if isinstance(replay, StoredStates):
                with only_warned("removing old layers of checkpoints"):
                    sweep(Files(), store_of(self._run.settings.project), replay)
