"""Requirements of histories, looked at before Spark starts: options, logs, forms of records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp

from changelog.contract.base.errors import ConfigurationError, ViewError
from changelog.contract.log.form import PLAIN
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.versions import with_versions
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedSchema
from changelog.contract.rows.types import Kind
from replay.base.config import OnBadRecord
from replay.decode.schemas import TopicSchemas
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.base.spark_sql import SparkSql
from views.project.history import check_columns
from views.project.spec import ViewSpec, short_name
from views.rebuild.plan.analysis import Analysis, Engine, Follow, analyse

_WHOLE = "it is a history, which is read from the start of the log"


def check_options(specs: Sequence[ViewSpec], settings: RebuildSettings) -> None:
    """Require that a run can build the histories among its views.

    Raises ConfigurationError: an option or setting is not for histories; names it.
    """
    histories = [spec.name for spec in specs if spec.history]
    rules = (
        (
            settings.source not in {None, RowsSource.START},
            "is read from the start of the log in each run",
            "rebuild it without --refresh, --follow, --from checkpoint and --from archive",
        ),
        (
            settings.as_of is not None,
            "has the older states in it",
            "leave out --as-of, and ask for the versions that were valid then (docs/history.md)",
        ),
        (
            settings.verify is not VerifyMode.FULL,
            "is published only once all of its rows are proved",
            "--verify full",
        ),
        (settings.stage, "cannot wait until --publish", "leave out --stage"),
        (settings.certificate, "gets no certificate", "leave out --certificate"),
        (
            settings.on_bad_record is OnBadRecord.QUARANTINE,
            "leaves out no record that cannot be read",
            "--on-bad-record fail",
        ),
    )
    for is_broken, why, hint in rules:
        if is_broken and histories:
            raise ConfigurationError(f'view "{histories[0]}" is a history, and {why}', hint=hint)


def check_logs(specs: Sequence[ViewSpec], others: Sequence[TableName], frontier: Frontier) -> None:
    """Require that the topics of histories have their versions in the form that is read.

    `others`: the tables of logs of other programs and captures.

    Raises ViewError: one has not; says why.
    """
    for spec in specs:
        if not spec.history:
            continue
        (table,) = spec.tables
        if table in others:
            why, hint = "is not of this project's capture", "history needs its frontiers"
        else:
            topic = frontier.topic_of(table) or ""
            scope = frontier.scope_of(topic)
            if not scope.keyed:
                why, hint = "has no primary key", "its rows have no versions: give it a key"
            elif scope.form != PLAIN:
                why = f"is captured as {scope.form}"
                hint = "a history is read from rows in Avro, the form that capture has by default"
            elif topic in frontier.grown:
                why = "has a topic that got more partitions, where a key's records stand in two"
                hint = "copy the table anew with `changelog resnapshot`"
            else:
                continue
        raise ViewError(
            f'view "{spec.name}" is a history of {short_name(table)}, which {why}', hint=hint
        )


# A value that PostgreSQL keeps apart from its row (TOAST) is not in the stream when an update did
# not touch it, unless the table has REPLICA IDENTITY FULL: capture reads it from the table, where a
# later change may have been at it. No frontier is written before that change has come, so states at
# frontiers are exact, and what lies between two is not. Rows below 2,000 bytes have no such values.
_TOASTED_BYTES = 2_000
_HEADER_BYTES, _ALIGNED_BYTES = 32, 12  # of a row; of a value, with its length
_FIXED_BYTES = {
    Kind.BOOLEAN: 1,
    Kind.INT: 4,
    Kind.LONG: 8,
    Kind.FLOAT: 4,
    Kind.DOUBLE: 8,
    Kind.DATE: 4,
    Kind.TIMESTAMP: 8,
    Kind.TIMESTAMPTZ: 8,
    Kind.UUID: 16,
    Kind.DECIMAL: 40,
}
_LIMITED = re.compile(r"character(?: varying)?\((\d+)\)")
_CHARACTER_BYTES = 4


def doubts_of(
    spec: ViewSpec, schemas: Mapping[TableName, TopicSchemas], frontier: Frontier
) -> list[str]:
    """Return a sentence where versions between two frontiers may have values of a later change."""
    doubtful = [
        table
        for table in (spec.tables if spec.history else ())
        if table in schemas
        and (
            frontier.scope_of(schemas[table].topic).dropped
            or most_bytes(schemas[table].logged(schemas[table].reader_id)) >= _TOASTED_BYTES
        )
    ]
    return [
        f"a version of {short_name(table)} that ended before the next frontier may have, of a "
        "large value (TOAST) that its update did not touch, the one of a later update, or be "
        "missing: REPLICA IDENTITY FULL at the source prevents that"
        for table in doubtful
    ]


def most_bytes(schema: LoggedSchema) -> float:
    """Return the size of the largest possible row in PostgreSQL; infinite if it has no limit."""
    total: float = _HEADER_BYTES + len(schema.columns)
    for column in schema.columns:
        limit = _LIMITED.fullmatch(column.type.name)
        if limit is not None and column.type.kind is Kind.STRING:
            size: float = int(limit[1]) * _CHARACTER_BYTES
        else:
            size = _FIXED_BYTES.get(column.type.kind, float("inf"))
        total += size + _ALIGNED_BYTES
    return total


def viewed(spec: ViewSpec, schema: LoggedSchema) -> LoggedSchema:
    """Return the columns that a view has of a table.

    Raises ViewError: the table has a column by the name of one of a history.
    """
    return with_versions(schema) if spec.history else schema


def analyse_history(spec: ViewSpec, schemas: Mapping[TableName, LoggedSchema]) -> Analysis:
    """Analyse a history; an engine of its own has its table with the columns of versions.

    Raises ViewError: its columns or key are not those of a history.
    """
    (table,) = spec.tables
    query = sqlglot.parse_one(spec.sql or "", read=SparkSql)
    assert isinstance(query, exp.Select)  # noqa: S101 - looked at where its file is read
    check_columns(spec, query, schemas[table])
    with Engine() as engine:
        analysis = analyse(spec, {table: with_versions(schemas[table])}, engine)
    follow = Follow("whole", _WHOLE)
    return replace(analysis, whole=_WHOLE, follow=follow)
