"""One case in the two engines: Spark, which serves, and DuckDB, which proves.

Both read the same small tables. What they give goes through DuckDB once more, so that lists whose
order Spark leaves open are put in one order, as a proof does; then it is compared in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from changelog.contract.base.errors import ChangelogError, ViewError
from changelog.contract.rows.relation import TableName
from changelog.runtime.closed_database import closed_database
from changelog.runtime.progress.steps import UNSEEN, Steps
from views.base.failure import explained
from views.cases.differences import CaseDifference, Row, differences
from views.cases.file import Case, CaseFile
from views.cases.values import expected_of
from views.meaning.view import as_meant
from views.project.spec import ViewSpec
from views.rebuild.one_view.build import frame_of
from views.verify.sql.bags import BagPlaces
from views.verify.sql.evaluate import computing, evaluate, ordered
from views.verify.values.names import folded, reading_name
from views.verify.values.types import Type, arrow_type, duckdb_type, logged_type, parse_type, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK, DUCKDB = "Spark", "DuckDB"

Columns = Sequence[tuple[str, Type]]


@dataclass(frozen=True, slots=True)
class EngineResult:
    """The result of a case in one engine."""

    engine: str  # its name
    problem: str = ""  # why there are no rows to compare, or an empty string
    differences: tuple[CaseDifference, ...] = ()  # of its rows

    @property
    def passed(self) -> bool:
        """Tell whether all is as expected."""
        return not self.problem and not self.differences


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a case."""

    view: str  # the view's name
    case: str  # the case's name
    told: tuple[EngineResult, ...]  # by each engine that was asked

    @property
    def passed(self) -> bool:
        """Return whether every engine gives the expected rows."""
        return all(outcome.passed for outcome in self.told)

    def to_json(self) -> dict[str, object]:
        """Return it as plain values."""
        engines = {
            outcome.engine.lower(): {
                "passed": outcome.passed,
                "problem": outcome.problem or None,
                "differences": [difference.to_json() for difference in outcome.differences],
            }
            for outcome in self.told
        }
        return {"view": self.view, "case": self.case, "passed": self.passed, "engines": engines}


def run_case(
    spark: SparkSession, spec: ViewSpec, file: CaseFile, case: Case, *, prove: bool = True
) -> Result:
    """Compute a view over the tables of a case and compare its rows.

    `prove`: whether the verifier computes a SQL view too.

    Raises ViewError: the case expects what the view's columns cannot hold, or the view compares
    values whose carried form has another meaning.
    """
    # A case does not say which columns are primary keys, on which the view's own key may rest: what
    # has to be one is looked at by the plan.
    spec = as_meant(spec, file.columns, {t: tuple(columns) for t, columns in file.columns.items()})
    types = {
        table: {name: logged_type(kind) for name, kind in columns.items()}
        for table, columns in file.columns.items()
    }
    inputs = {table: _arrow(case.tables[table], types[table].items()) for table in types}
    try:
        frame, columns = _frame(spark, spec, inputs, types)
        rows = _without_zones(frame.toArrow(), columns)
    except Exception as error:  # noqa: BLE001 - whatever a view throws is its failure
        return Result(spec.name, case.name, (_failed(spec, case, error),))
    if case.error is not None:
        problem = f"gives {rows.num_rows} rows where an error is expected: {case.error!r}"
        return Result(spec.name, case.name, (EngineResult(SPARK, problem),))
    with closed_database() as database:
        database.execute("SET threads = 1; SET TimeZone = 'UTC'")
        bags, refused = _computed(database, spec, inputs, types, columns) if prove else ({}, "")
        compared = _Compared(database, spec, case, columns, bags)
        database.register("by_spark", rows)
        outcomes = [compared.told(SPARK, "by_spark")]
        if refused:
            outcomes.append(EngineResult(DUCKDB, refused))
        elif prove and spec.sql is not None:
            outcomes.append(compared.told(DUCKDB, "by_duckdb"))
    return Result(spec.name, case.name, tuple(outcomes))


def _arrow(rows: Iterable[Row], columns: Iterable[tuple[str, Type]]) -> pa.Table:
    """Return rows as Arrow has them."""
    listed, arrays = list(rows), {}
    for name, kind in columns:
        try:
            arrays[name] = pa.array([row[name] for row in listed], arrow_type(kind))
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise ViewError(f'column "{name}" cannot hold a value: {error}') from error
    return pa.table(arrays)


def _frame(
    spark: SparkSession,
    spec: ViewSpec,
    inputs: Mapping[TableName, pa.Table],
    types: Mapping[TableName, Mapping[str, Type]],
) -> tuple[DataFrame, Columns]:
    frames = {}
    for table, rows in inputs.items():
        own = types[table]
        frame = spark.createDataFrame(rows)
        frames[table] = frame.select(
            *(F.col(f"`{n.replace('`', '``')}`").cast(_spark(k)).alias(n) for n, k in own.items())
        )
    computed = frame_of(spark, spec, frames)
    return computed, [(name, parse_type(kind)) for name, kind in computed.dtypes]


def _spark(kind: Type) -> str:
    """Return Spark's name of a column's type."""
    if kind.name == "array":
        return f"array<{_spark(kind.fields[0][1])}>"
    return f"decimal({kind.precision},{kind.scale})" if kind.name == "decimal" else kind.name


def _without_zones(rows: pa.Table, columns: Columns) -> pa.Table:
    """Return timestamps with a zone as UTC without one, the form that DuckDB has here."""
    schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns])
    return rows.cast(schema)


def _failed(spec: ViewSpec, case: Case, error: Exception) -> EngineResult:
    failure = error
    if not isinstance(failure, ChangelogError):
        failure = explained(error, f'view "{spec.name}"', spec.sql)
    text = str(failure.args[0]) if failure.args else type(failure).__name__
    if case.error is None:
        return EngineResult(SPARK, text)
    if case.error.lower() in f"{text}\n{error}".lower():
        return EngineResult(SPARK)
    return EngineResult(SPARK, f"the error is another one than {case.error!r}: {text}")


def _computed(
    database: duckdb.DuckDBPyConnection,
    spec: ViewSpec,
    inputs: Mapping[TableName, pa.Table],
    types: Mapping[TableName, Mapping[str, Type]],
    columns: Columns,
) -> tuple[Mapping[str, BagPlaces], str]:
    """Compute a SQL view as the verifier does; return its bags, or the reason of a refusal."""
    if spec.sql is None:
        return {}, ""
    for number, (table, rows) in enumerate(inputs.items()):
        kinds = types[table]
        listed = ", ".join(f"{quoted(folded(n))} {duckdb_type(k)}" for n, k in kinds.items())
        database.execute(f"CREATE TABLE {reading_name(table)} ({listed})")
        database.register(f"given_{number}", rows)
        database.execute(f"INSERT INTO {reading_name(table)} SELECT * FROM given_{number}")
    try:
        return evaluate(database, "by_duckdb", spec.sql, types, columns).bags, ""
    except ChangelogError as error:
        return {}, str(error)


class _Compared:
    """The expected rows of a case, to be compared with an engine's."""

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        spec: ViewSpec,
        case: Case,
        columns: Columns,
        bags: Mapping[str, BagPlaces],
    ) -> None:
        """Bring the expected rows in the types that the view has.

        Raises ViewError: one has a column that the view lacks, or a value that it cannot hold.
        """
        self._database = database
        self._key = spec.key
        self._whole = case.whole
        self._columns = columns
        self._bags = bags
        self._expected = [self._row(case, row) for row in case.rows or ()]

    def told(self, engine: str, relation: str) -> EngineResult:
        """Compare the rows of an engine."""
        try:
            with computing():  # a view of DuckDB's is computed as it is read
                rows = self._rows(relation)
        except ChangelogError as error:
            return EngineResult(engine, str(error))
        different = differences(rows, self._expected, self._key, whole=self._whole)
        return EngineResult(engine, "", tuple(different))

    def _row(self, case: Case, row: Row) -> Row:
        kinds = dict(self._columns)
        if unknown := [name for name in row if name not in kinds]:
            raise ViewError(
                f"it expects a column {', '.join(unknown)}",
                hint=f"the view has {', '.join(kinds)}",
            )
        full = {name: _value(name, kind, row) for name, kind in self._columns}
        self._database.register("expected", _arrow([full], self._columns))
        (whole,) = self._rows("expected")
        return whole if case.whole else {name: whole[name] for name in row}

    def _rows(self, relation: str) -> list[dict[str, Any]]:
        names = [name for name, _ in self._columns]
        listed = [ordered(quoted(name), name, kind, self._bags) for name, kind in self._columns]
        rows = self._database.execute(f"SELECT {', '.join(listed)} FROM {relation}").fetchall()
        return [dict(zip(names, row, strict=True)) for row in rows]


def _value(name: str, kind: Type, row: Row) -> Any:  # noqa: ANN401 - of any type
    try:
        return expected_of(kind, row[name]) if name in row else None
    except ViewError as error:
        raise ViewError(
            f'it expects of column "{name}": {error.args[0]}', hint=error.hint
        ) from error


def run_cases(
    spark: SparkSession,
    files: Iterable[tuple[ViewSpec, CaseFile]],
    *,
    prove: bool = True,
    say: Callable[[Result], None] = lambda _: None,
    steps: Steps = UNSEEN,
) -> list[Result]:
    """Run all cases of some views, one after the other.

    `files`: the cases of each view. `prove`: whether the verifier computes SQL views too. `say`: is
    told of each result.
    """
    results = []
    for spec, file in files:
        for case in file.cases:
            steps.begin(f"{spec.name}, {case.name}")
            try:
                result = run_case(spark, spec, file, case, prove=prove)
            except ViewError as error:
                result = Result(spec.name, case.name, (EngineResult("case", str(error)),))
            steps.done()
            say(result)
            results.append(result)
    return results
