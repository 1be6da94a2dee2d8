"""The settings that a replay reads, each declared once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    Strict,
    field_validator,
    model_validator,
)

from changelog.config import FILE_NAME, Project
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.forms.declared import (
    PLACEHOLDER,
    Beginning,
    DeclaredLog,
    From,
    Order,
    Unavailable,
    ValueShape,
    declared_columns,
)
from changelog.contract.log.joined import CapturedLog
from changelog.contract.rows.choices import ColumnChoice, ValueChoice, choices_of
from changelog.contract.rows.relation import TableName
from changelog.runtime.setting import Section, Setting
from replay.base.config import TASK_MEMORY_MB, OnBadRecord


class Spark(Section):
    """Settings of Spark."""

    section: ClassVar[str] = "spark"
    subjects: ClassVar[Mapping[str, str]] = {"master": "Spark"}
    master: Annotated[
        str,
        Setting("Spark's master URL, such as local[4] or sc://host:15002.", "--master"),
    ] = "local[*]"
    task_memory_mb: Annotated[
        int,
        Field(ge=1),
        Setting("What a task that reads a topic holds before it goes on in a file."),
    ] = TASK_MEMORY_MB
    settings: Annotated[
        dict[str, str], Setting("Further settings of the session, Spark's names.", secret=True)
    ] = Field(default_factory=dict)


class Kept(Section):
    """Settings of kept states, and of records that cannot be read."""

    section: ClassVar[str] = "rebuild"  # which views declare further settings of
    warehouse: Annotated[
        str,
        Setting("Folder of the Delta tables, under the project's unless it is absolute, or a URI."),
    ] = "warehouse"
    archive: Annotated[
        str,
        Setting(
            "Folder of the archive of the log, which `changelog archive` fills and `--from "
            "archive` reads; under the project's unless it is absolute, or a URI.",
            "--archive",
        ),
    ] = "archive"
    checkpoint_days: Annotated[
        int, Field(ge=1), Setting("How long checkpoints stay, one a day; for `--as-of`.")
    ] = 7
    on_bad_record: Annotated[
        OnBadRecord,
        Setting(
            "What a record that cannot be read does: fail (the default), or quarantine: its "
            "row is left out, the record goes to the table _quarantine of the warehouse.",
            "--on-bad-record",
        ),
    ] = OnBadRecord.FAIL
    values: Annotated[
        dict[str, ValueChoice],
        Setting(
            "What views get of NaN and infinities in a numeric(p,s), of infinite dates and "
            "moments, and of arrays of another shape, by `schema.table.column`, `*` for any text: "
            "refuse (the default), null, or text: PostgreSQL's text of all values of the column "
            "(docs/reading.md)."
        ),
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _patterns(self) -> Self:
        _ = self.choices
        return self

    @property
    def choices(self) -> tuple[ColumnChoice, ...]:
        """Return the replacement of values that have no form, by column.

        Raises ChoicesError: a pattern is of no column.
        """
        return choices_of(self.values)


class Log(BaseModel):
    """A topic of another program, or of another capture."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    topic: Annotated[str, Setting("Where its records lie.")]
    frontier: Annotated[
        str,
        Setting(
            "Of a table that another capture writes: the topic of that one's frontiers; it is read "
            "to the newest one. Of the rest only `topic` and `slot` are set then."
        ),
    ] = ""
    slot: Annotated[str, Setting("The slot of that capture.")] = ""
    form: Annotated[
        ValueShape | None,
        Setting(
            "What its values tell, and how they are written; required of logs of other programs."
        ),
    ] = None
    key: Annotated[
        list[str], Setting("The columns of its key; required of logs of other programs.")
    ] = Field(default_factory=list)
    delete: Annotated[
        str, Setting("Of flattened rows: the column that marks a deleted one; or none.")
    ] = ""
    order: Annotated[
        Order, Setting("Which of two records is newer: by `offset`, or by `lsn` (Debezium's).")
    ] = Order.OFFSET
    columns: Annotated[dict[str, str], Setting("Of JSON forms: the columns and their types.")] = (
        Field(default_factory=dict)
    )
    key_changes: Annotated[bool, Strict(), Setting("Of cud-json: whether updates change keys.")] = (
        True
    )
    placeholder: Annotated[
        str, Setting("What stands for a value that the source did not send.")
    ] = PLACEHOLDER
    on_unavailable: Annotated[
        Unavailable,
        Setting("What becomes of it where no older record has the value: fail, null or keep."),
    ] = Unavailable.FAIL
    beginning: Annotated[
        Beginning | AwareDatetime,
        Setting(
            "Where it begins: at its first record (start), at the earliest that retention has left "
            "(earliest), or at those that were appended from a time on: rows whose last record is "
            "older are missing then."
        ),
    ] = Beginning.START

    @field_validator("beginning", mode="before")
    @classmethod
    def _stays_what_it_is(cls, value: object) -> object:
        if value == "now":
            moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            raise ConfigurationError(
                f'{FILE_NAME}: logs: beginning = "now" would be another moment at each run, and a '
                "view of it could not be proved",
                hint=f"write the moment down, without quotes: beginning = {moment}",
            )
        return value


_OF_CAPTURED = {"topic", "frontier", "slot"}


class Logs(RootModel[dict[str, Log]]):
    """Logs of others that views may read, by `table` or `schema.table`."""

    model_config = ConfigDict(frozen=True)
    section: ClassVar[str] = "logs"
    root: Annotated[
        dict[str, Log],
        Setting("Logs of other programs and other captures, each by its name: docs/reading.md."),
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _checked(self) -> Self:
        _ = self.all
        return self

    @property
    def all(self) -> tuple[DeclaredLog | CapturedLog, ...]:
        """Return the logs as they are read.

        Raises ConfigurationError: a declaration contradicts itself.
        """
        return _checked(self.root)

    @property
    def declared(self) -> tuple[DeclaredLog, ...]:
        """Return the logs of other programs."""
        return tuple(log for log in self.all if isinstance(log, DeclaredLog))

    @property
    def captured(self) -> tuple[CapturedLog, ...]:
        """Return the logs of other captures."""
        return tuple(log for log in self.all if isinstance(log, CapturedLog))


def _checked(logs: Mapping[str, Log]) -> tuple[DeclaredLog | CapturedLog, ...]:
    """Return the logs, checked as far as it can be done without a server."""
    declarations: list[DeclaredLog | CapturedLog] = []
    for name, log in logs.items():
        where, parts = f"logs.{name}", name.split(".")
        if len(parts) > 2 or not all(parts):  # noqa: PLR2004 - schema and table
            raise _refused(where, "its name is not `table` or `schema.table`")
        if log.topic in [other.topic for other in declarations]:
            raise _refused(where, f'topic "{log.topic}" is declared twice')
        table = TableName(*parts) if len(parts) > 1 else TableName("public", parts[0])
        is_captured = log.frontier or log.slot
        declarations.append((_captured if is_captured else _declared)(where, table, log))
    return tuple(declarations)


def _captured(where: str, table: TableName, log: Log) -> CapturedLog:
    if not (log.frontier and log.slot):
        has, lacks = ("frontier", "slot") if log.frontier else ("slot", "frontier")
        raise _refused(where, f"it has `{has}` and no `{lacks}`: a log of another capture has both")
    if further := sorted(log.model_fields_set - _OF_CAPTURED):
        raise _refused(where, f"`{further[0]}` is what the frontier of a capture says by itself")
    return CapturedLog(table=table, topic=log.topic, frontier_topic=log.frontier, slot=log.slot)


def _declared(where: str, table: TableName, log: Log) -> DeclaredLog:
    columns = declared_columns(log.columns, where)
    names = [column.column for column in columns]
    if log.form is None or not log.key:
        raise _refused(
            where,
            "a log of another program needs `form` and `key`, one of another capture `frontier` "
            "and `slot`",
        )
    problem = ""
    if log.form.is_registered and columns:
        problem = "`columns` are those that the registry has, for a form with schemas"
    elif not log.form.is_registered and not columns:
        problem = "a JSON form needs `columns`: documents do not say what they are"
    elif columns and (missing := [column for column in log.key if column not in names]):
        problem = f"its key names {', '.join(missing)}, which is none of its columns"
    elif log.delete and not log.form.is_flat:
        problem = "`delete` names a marker of flattened rows; an envelope says it by its `op`"
    elif log.order is Order.LSN and not log.form.value.startswith("debezium"):
        problem = "`order` can be lsn in Debezium's envelope alone"
    if problem:
        raise _refused(where, problem)
    return DeclaredLog(
        table=table,
        topic=log.topic,
        shape=log.form,
        key=tuple(log.key),
        delete=log.delete,
        order=log.order,
        columns=columns,
        key_changes=log.key_changes,
        placeholder=log.placeholder,
        on_unavailable=log.on_unavailable,
        beginning=log.beginning
        if isinstance(log.beginning, Beginning)
        else From(int(log.beginning.timestamp() * 1000)),
    )


def _refused(where: str, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"{FILE_NAME}: {where}: {problem}", hint="docs/reading.md describes the section"
    )


def warehouse_of(project: Project) -> str:
    """Return the path or URI of the folder of Delta tables."""
    return project.under(project.section(Kept).warehouse)


def archive_of(project: Project) -> str:
    """Return the path or URI of the archive of the log."""
    return project.under(project.section(Kept).archive)
