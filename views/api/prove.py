"""Prove the serving generation: its rows against the log, at the frontier of its build.

A rebuild proves a generation before readers see it. What happened to it since (a hand in the
warehouse, a disk) is found here, for as long as the log can still give that state exactly.
"""

from __future__ import annotations

from typing import Any

from changelog.contract.base.errors import VerdictError, ViewError
from changelog.contract.log.frontier import FrontierRecord
from replay.broker.topics import read_frontiers
from replay.cut.cut import make_cut, recheck
from replay.decode.schemas import schemas_of
from views.api.values import Proof
from views.base.config import RebuildSettings
from views.generations.history import GenerationHistory, HistoryRow
from views.generations.served import served_of
from views.project.definition import changed_declaration
from views.project.spec import ViewSpec
from views.rebuild.one_view.certify import request_of
from views.rebuild.plan.plan import logs_of
from views.rebuild.plan.plannable import meaning
from views.verify.view import verify_view


def prove(spec: ViewSpec, settings: RebuildSettings) -> tuple[Proof, ...]:
    """Compare the rows that each sink of a view serves with the log; return any mismatches.

    Raises:
        ViewError: nothing serves, or the view's file is another than that of what serves.
        VerdictError: the log cannot give the state of that frontier any more.
        SinkError: a sink cannot be read.
    """
    if logs_of([spec], settings):
        raise ViewError(
            f'view "{spec.name}" reads logs of other programs or captures, at a cut that no '
            "frontier of this one names",
            hint="rebuild it: that proves what it builds",
        )
    served = served_of(spec, settings.project, None)
    proofs = []
    for name, sink in served.sinks.items():
        number = sink.published()
        if number is None:
            raise ViewError(f'of view "{spec.name}" nothing serves yet in {name}')
        row = _built(spec, settings, number)
        record = _frontier(row, settings)
        cut = make_cut(settings.project.kafka, record, spec.tables, settings=settings.replay())
        cut.verdict.require()
        schemas = schemas_of(
            settings.project.registry, settings.project.kafka, record.frontier, cut.topics
        )
        meant = meaning(spec, schemas)
        columns: Any = tuple((column, kind) for column, kind in row.declaration["columns"])
        request = request_of(settings, record.frontier, meant, columns, sink.address(number), {})
        report = verify_view(request)
        recheck(cut, settings.project.kafka)
        proofs.append(Proof.of(report, number, name, str(record.frontier.lsn)))
    return tuple(proofs)


def recorded(spec: ViewSpec, settings: RebuildSettings, number: int | None) -> tuple[Proof, ...]:
    """Return the proof that was made of a generation before it was published, by sink.

    Raises:
        ViewError: the history has none of it.
    """
    rows = [
        row
        for row in GenerationHistory(settings.warehouse).rows([spec.name])
        if row.certificate and number in {None, row.generation}
    ]
    if not rows:
        which = "" if number is None else f" of generation {number}"
        raise ViewError(
            f'view "{spec.name}" has no proof{which} on record',
            hint="rebuild it with verify='full'",
        )
    row = rows[-1]
    return tuple(
        Proof(
            view=spec.name,
            generation=row.generation,
            sink=name,
            lsn=row.lsn or "",
            verified=certificate.get("verified"),
            rows_expected=int(certificate.get("rows_expected") or 0),
            rows_served=int(certificate.get("rows_served") or 0),
            mismatches=int(certificate.get("mismatches") or 0),
            notes=tuple(certificate.get("notes") or ()),
            certificate=certificate.get("certificate") or {},
        )
        for name, certificate in row.certificate.items()
    )


def _built(spec: ViewSpec, settings: RebuildSettings, number: int) -> HistoryRow:
    """Return the history's record of the build of a generation."""
    rows = [
        row
        for row in GenerationHistory(settings.warehouse).rows([spec.name])
        if row.generation == number and row.declaration and row.lsn is not None
    ]
    if not rows or spec.sql is None:
        raise ViewError(
            f'generation {number} of view "{spec.name}" cannot be proved anew: '
            + ("it is made by a function" if rows else "its columns are not on record"),
            hint="rebuild it: that proves what it builds",
        )
    changed = changed_declaration(rows[-1].declaration, spec, since=f"generation {number}")
    if changed:
        raise ViewError(
            f'the file of view "{spec.name}" is another than that of generation {number}, which '
            "serves",
            hint="rebuild the view, or put the file back",
        )
    return rows[-1]


def _frontier(row: HistoryRow, settings: RebuildSettings) -> FrontierRecord:
    project = settings.project
    for record in reversed(read_frontiers(project.kafka, settings.frontier_topic, project.slot)):
        if (record.frontier.epoch, str(record.frontier.lsn)) == (row.epoch, row.lsn):
            return record
    raise VerdictError(
        f'the frontier of generation {row.generation} of view "{row.view}", LSN {row.lsn}, is on '
        "the log no more",
        hint="rebuild the view: that proves what it builds",
    )
