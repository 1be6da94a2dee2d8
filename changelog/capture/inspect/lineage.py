"""Tell OpenLineage of a capture: tables of the source to topics of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg2.extensions import parse_dsn

from changelog.capture.state.report import CaptureReport
from changelog.config import Project
from changelog.contract.rows.relation import Relation
from changelog.runtime.lineage.facts import Dataset, Job, RunState, SourceColumn
from changelog.runtime.lineage.places import table_place, topic_place
from changelog.runtime.lineage.sending import ended_with_block, sending


@dataclass(frozen=True, slots=True)
class _Capture:
    settings: Project
    report: CaptureReport

    def state(self) -> RunState:
        """Return the captured tables and their topics, as far as they are known."""
        report, inputs, outputs = self.report, [], []
        parts, brokers = parse_dsn(self.settings.postgres), self.settings.kafka.brokers
        rows = Counter(report.snapshot_rows) + Counter(report.changes)
        for table in report.captured:
            place = table_place(parts, table.relation.name)
            columns = _columns(table.logged)
            inputs.append(Dataset(place=place, columns=_columns(table.relation)))
            outputs.append(
                Dataset(
                    place=topic_place(brokers, table.topic),
                    columns=columns,
                    version=f"LSN {report.lsn}" if report.lsn else "",
                    sources={
                        name: [SourceColumn(place, name, "IDENTITY", name in table.masked)]
                        for name in columns
                    },
                    rows=rows[table.relation.name],
                )
            )
        return RunState(inputs, outputs)


@contextmanager
def told_to_lineage(settings: Project, report: CaptureReport) -> Iterator[None]:
    """Tell of the capture in the block, where somebody asks for it."""
    with sending() as sender:
        if sender is None:
            yield
            return
        job = Job(name=f"capture.{settings.slot}", kind="CAPTURE", is_streaming=True)
        run = sender.begin(job, _Capture(settings, report).state)
        report.on_captured = run.know
        with ended_with_block(run):
            yield


def _columns(relation: Relation) -> dict[str, str]:
    return {column.name: column.type.name for column in relation.columns}
