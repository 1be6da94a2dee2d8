"""The columns and the beginning of a declared log, known before a record is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from changelog.contract.base.errors import ConfigurationError, CorruptRecordError
from changelog.contract.forms.declared import DeclaredLog, avro_columns
from changelog.contract.rows.schema import LoggedColumn
from replay.decode.schemas import SchemaReader


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log and how its records are read.

    Attributes:
        log: as declared.
        columns: of its rows.
        keys: Avro schemas of keys by id; empty in JSON.
        values: Avro schemas of values by id; empty in JSON.
        reader_id: id of the newest of these; 0 in JSON.
    """

    log: DeclaredLog
    columns: tuple[LoggedColumn, ...]
    keys: Mapping[int, str]
    values: Mapping[int, str]
    reader_id: int


def source_of(log: DeclaredLog, schemas: SchemaReader) -> LogSource:
    """Return the present columns of a log, and how its records are read.

    Raises:
        ConfigurationError: a column of the key is not among them.
        CorruptRecordError: a schema is not of the declared form, or has a type without exact form.
        LogError: the registry has no schemas of the topic.
        UnavailableLogError: the registry does not answer.
    """
    columns, newest = log.columns, 0
    keys: dict[int, str] = {}
    values: dict[int, str] = {}
    if log.shape.is_avro:
        keys, values = schemas.versions_of(log.topic)
        newest = list(values)[-1]
        columns = avro_columns(values[newest], log.shape)
        if log.delete:
            columns = tuple(column for column in columns if column.column != log.delete)
    names = [column.column for column in columns]
    missing = [name for name in log.key if name not in names]
    if missing:
        raise ConfigurationError(
            f'log "{log.table}": its key names {", ".join(missing)}, and its columns are '
            f"{', '.join(names) or 'none'}",
            hint="correct `key` or `columns` of the log in changelog.toml",
        )
    twins = {name for name in names if [other.lower() for other in names].count(name.lower()) > 1}
    if twins:
        raise CorruptRecordError(
            f'log "{log.table}" has columns that Spark does not tell apart: {sorted(twins)}'
        )
    return LogSource(log, columns, keys, values, newest)
