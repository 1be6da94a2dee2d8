"""The generation that a run moves forward: the serving one, or an unpublished one.

A delta is computed where all sinks of a view take one, proved, and applied to each of them; what is
served is compared whole now and then, since the proof of some keys does not say that no other one
changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from changelog.contract.base.errors import RefutedError
from changelog.contract.rows.relation import TableName
from replay.base.record_place import cut_of
from replay.decode.schemas import TopicSchemas
from replay.result.state import States
from views.base.config import VerifyMode
from views.base.failure import RebuildError
from views.generations.history import PUBLISHED, REFUTED, UNCHANGED_EVERY, unchanged_at
from views.project.lineage import KeyLineage
from views.project.spec import ViewSpec
from views.rebuild.one_view.certify import Certifier
from views.rebuild.one_view.delta import (
    MOST_KEYS,
    Delta,
    apply,
    delta_from_spark,
    deltas_from_spark,
    forward_sinks,
    position_of,
)
from views.rebuild.one_view.refresh import (
    DELTA,
    Merged,
    RefreshBase,
    WholeRefresh,
    is_by_key,
    lineage_of,
    prior_of,
)
from views.rebuild.one_view.view_build import ViewBuild
from views.rebuild.plan.plan import Plan
from views.rebuild.resident import RECORDED_EVERY
from views.rebuild.run.proof import judged, require_exact
from views.rebuild.run.run import RunContext, only_warned
from views.sinks.base import ForwardSink, rows_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("changelog.views")


class Forward:
    """Brings generations forward by the keys that changed."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    def sinks(self, build: ViewBuild) -> Mapping[str, ForwardSink]:
        """Return the sinks of a view if the generation that serves may go forward, else none."""
        proves_changes = self._run.settings.verify in {VerifyMode.CHANGED, VerifyMode.NONE}
        if not self._run.settings.forward or build.previous is None or not proves_changes:
            return {}
        sinks = forward_sinks(build.served, build.previous)
        if isinstance(sinks, str):
            log.info('view "%s" is written anew: %s', build.spec.name, sinks)
            return {}
        return sinks

    def delta(
        self,
        certifier: Certifier,
        replay: States,
        build: ViewBuild,
        merged: Merged,
        schema: StructType,
    ) -> Delta | WholeRefresh:
        """Return the step that brings a generation forward, the last one of several.

        What readers see goes forward in one step or not at all; a generation that nobody sees yet
        may be given the others, each proved, at once.
        """
        key, sinks, keys = build.spec.key, build.forward, merged.change.keys
        if self._run.bases is None:
            if keys > MOST_KEYS:
                return WholeRefresh(f"{keys:,} keys are affected, more than go forward at once")
            return delta_from_spark(merged.change, schema, key, sinks)
        count = -(-keys // MOST_KEYS) or 1
        parts = deltas_from_spark(merged.change, schema, key, sinks, parts=count)
        delta = next(parts)
        for after in parts:
            self._require_proved(certifier, build, delta)
            assert build.previous is not None  # noqa: S101 - it is the base
            (error,) = apply([(sinks, build.previous, delta)], cut_of(replay.cut.record.frontier))
            if error is not None:
                raise error
            delta = after
        return delta

    def _require_proved(self, certifier: Certifier, build: ViewBuild, delta: Delta) -> None:
        if self._run.settings.verify is VerifyMode.NONE:
            return
        report = certifier.report(build.spec, build.columns, delta.proof_request())
        report.raise_on_mismatch()
        if report.verified is None:
            raise RebuildError(
                f'view "{build.spec.name}" cannot be verified: {"; ".join(report.notes)}',
                hint="--verify none publishes it unproved",
            )

    def apply(self, replay: States, builds: Sequence[ViewBuild]) -> None:
        """Write the proved rows of some keys to the sinks, in one step each."""
        deltas = [
            (build.forward, build.previous, build.delta)
            for build in builds
            if build.previous is not None and build.delta is not None
        ]
        with self._run.stage("apply", "changed keys to every sink"):
            failed = apply(deltas, cut_of(replay.cut.record.frontier))
        for build, error in zip(builds, failed, strict=True):
            with self._run.answerable(build):
                if error is not None:
                    raise error
                build.published = self._run.bases is None
                build.rows = rows_of(next(iter(build.forward.values())), build.number)
                self._run.note_refused(build, build.number)
        due = [build for build in builds if build.published and _is_due(build)]
        with self._run.stages.stage("record", "write the history"), only_warned("the history"):
            self._run.record(PUBLISHED, due, Plan(replay.cut.record, replay.cut), replay)

    def rest(self, replay: States, builds: Sequence[ViewBuild]) -> None:
        """Record now and then that unchanged generations are true up to this frontier."""
        if self._run.bases is not None:
            return  # what readers do not see yet is not published by it
        now, rows = datetime.now(UTC), []
        for build in builds:
            at, number = build.recorded_at, build.previous
            if at is None or number is None or now - at < UNCHANGED_EVERY:
                continue
            recorded = self._run.history.rows([build.spec.name], generation=number)
            row = unchanged_at(recorded, number, replay.cut.record.frontier, self._run.id)
            rows += [row] if row is not None else []
        with only_warned("the history"):
            self._run.history.append(rows)

    def look(self, certifier: Certifier, replay: States, builds: Sequence[ViewBuild]) -> None:
        """Compare all served rows: a proof of some keys does not show that no other row changed.

        The result is recorded: a view that is refuted no longer counts as proved.
        """
        if not self._run.settings.looks or self._run.settings.verify is VerifyMode.NONE:
            return
        for build in builds:
            with self._run.answerable(build):
                if not build.published:
                    continue
                for name, sink in build.forward.items():
                    text = f"{build.spec.name}: verify all of {name}"
                    with self._run.stage("verify", text, build.spec.name):
                        address = sink.address(build.number)
                        report = certifier.report(build.spec, build.columns, address)
                        build.reports = {**build.reports, name: report}
                if (error := judged(build)) is not None:
                    require_exact(replay, build)
                    build.error = error
                if error is None or isinstance(error, RefutedError):
                    state = PUBLISHED if error is None else REFUTED
                    with only_warned("the history", of=f'view "{build.spec.name}": '):
                        plan = Plan(replay.cut.record, replay.cut)
                        self._run.record(state, [build], plan, replay)
                if error is not None:
                    raise error


def _is_due(build: ViewBuild) -> bool:
    """Tell whether the position of a generation is due for the history."""
    at = build.recorded_at
    return at is None or datetime.now(UTC) - at >= RECORDED_EVERY


def standing(run: RunContext, forward: Forward, build: ViewBuild) -> RefreshBase:
    """Return the generation that a refresh of the view continues, and note when it was recorded.

    History and sinks are asked once: nobody else moves the view's readers meanwhile.
    """
    if build.standing is None:
        build.standing = _asked(run, forward, build)
    return build.standing


def _asked(run: RunContext, forward: Forward, build: ViewBuild) -> RefreshBase:
    rows = run.history.rows([build.spec.name], generation=build.previous)
    build.recorded_at = rows[-1].at if rows else None
    if rows and rows[-1].state == REFUTED:
        why = f"generation {build.previous}, which serves, is refuted"
        return RefreshBase(WholeRefresh(why), {})
    sinks = forward.sinks(build)
    if sinks and build.previous is not None:
        position = position_of(sinks, build.previous)
        prior = prior_of(rows, build.previous, None, goes_forward=True, position=position)
    else:
        prior = prior_of(rows, build.previous, _place(build))
    return RefreshBase(prior, sinks)


def needs_rows(
    spec: ViewSpec, stand: RefreshBase, schemas: Mapping[TableName, TopicSchemas]
) -> bool:
    """Tell whether a refresh of a view needs its tables' rows at the view's position."""
    if isinstance(stand.prior, WholeRefresh):
        return False
    logged = {table: schemas[table].logged(schemas[table].reader_id) for table in spec.tables}
    columns = {table: [c.column for c in schema.columns] for table, schema in logged.items()}
    lineage = lineage_of(spec, columns, {table: schema.key for table, schema in logged.items()})
    return isinstance(lineage, KeyLineage) and not is_by_key(lineage, spec, stand.prior)


def _place(build: ViewBuild) -> str | None:
    """Return the path of the Delta table with the serving rows, if there is one."""
    sink = build.served.sinks.get(DELTA)
    if sink is None or build.previous is None:
        return None
    return sink.address(build.previous).location["path"]
