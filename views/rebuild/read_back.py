"""Read a generation of a view back from a sink, as the verifier reads what a sink serves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from changelog.contract.base.errors import ChangelogError, SinkError
from changelog.runtime.progress.steps import UNSEEN, Steps
from views.base.address import Address
from views.base.config import VerifyMode
from views.generations.history import GenerationHistory, HistoryRow, as_built
from views.generations.served import Served
from views.verify.compare.compare import rows_hash
from views.verify.processes.scratch import MEMORY_LIMIT, first_row, scratch
from views.verify.served.documents import FAULT_COLUMN, ID_COLUMN
from views.verify.served.served import read_served
from views.verify.values.types import Type, parse_type, quoted

DELTA = "delta"


class UncomparableError(ChangelogError):
    """Two generations of a view cannot be compared row by row."""


@dataclass(frozen=True, slots=True)
class BuiltGeneration:
    """A generation in one sink: its address and the form of its rows."""

    view: str  # its view
    sink: str  # name of the sink
    number: int  # of the generation
    address: Address  # where the sink has it
    types: Mapping[str, str]  # of its columns, as Spark writes them
    key: tuple[str, ...]  # its columns

    @classmethod
    def of(
        cls, served: Served, sink: str, number: int, rows: Sequence[HistoryRow]
    ) -> BuiltGeneration | None:
        """Find a generation by the view's history, or return None where its columns are unknown.

        Raises SinkError: the sink does not answer, or does not hold the generation whole.
        """
        declared = next(
            (r.declaration for r in reversed(rows) if r.generation == number and r.declaration), {}
        )
        address = served.sinks[sink].address(number)
        types = _types_in_delta(address) if sink == DELTA else dict(declared.get("columns", ()))
        if not types:
            return None
        key = tuple(declared.get("key", ()))
        return cls(served.view, sink, number, address, types, key)

    @property
    def columns(self) -> list[tuple[str, Type]]:
        """Return the columns with their types."""
        return [(name, parse_type(kind)) for name, kind in self.types.items()]

    def read(self, database: duckdb.DuckDBPyConnection, table: str) -> int:
        """Read all rows into a new table; return their number.

        Raises UncomparableError: a row is not in the form in which it was written; SinkError: the
        generation cannot be read.
        """
        rows = read_served(database, table, self.address, self.columns, self.key)
        fault = f"FROM {table} WHERE {FAULT_COLUMN} IS NOT NULL LIMIT 1"
        odd = first_row(database, f"SELECT {quoted(ID_COLUMN)}, {FAULT_COLUMN} {fault}")
        if odd is not None:
            raise UncomparableError(
                f'view "{self.view}" in {self.sink}: what generation {self.number} has under '
                f"{odd[0]!r} is not as it was written: {odd[1]}",
                hint="something else has written there; rebuild the view",
            )
        return rows


def check_whole(served: Served, sink: str, generation: int, rows: Sequence[HistoryRow]) -> None:
    """Check that a sink still has the rows of a generation that were proved, in their form.

    Where only its changed rows or a sample were proved, or an earlier version proved it, only the
    number of rows is compared.

    `served`: the view and its sinks. `generation`: one that no reader sees; others may have changed
    it since it was proved.

    Raises SinkError: it has other rows, or does not hold the generation at all; UncomparableError:
    a row is not in the form in which it was written.
    """
    written = served.sinks[sink].rows(generation)
    built = BuiltGeneration.of(served, sink, generation, rows)
    if built is None:
        return
    proof = _proof(as_built(rows, generation), sink)
    proved_hash = proof.get("hash") or None
    if proved_hash:
        built = replace(built, types=dict(proof["columns"]), key=tuple(proof["key"]))
    with scratch(None, MEMORY_LIMIT) as database:
        there = built.read(database, "there")
        own_hash = rows_hash(database, "there", built.columns) if proved_hash else None
    if there != written:
        raise SinkError(
            f'view "{served.view}" in {sink}: generation {generation} has {there:,} rows, '
            f"and {written:,} were written",
            hint=f"something else has changed it: `rebuild-view {served.view}` builds a new one",
        )
    if own_hash != proved_hash:
        raise SinkError(
            f'view "{served.view}" in {sink}: the rows of generation {generation} have other '
            "values than those that were proved",
            hint=f"something else has changed it: `rebuild-view {served.view}` builds a new one",
        )


def check_all_whole(
    targets: Iterable[tuple[Served, int]],
    history: GenerationHistory,
    verify: VerifyMode,
    steps: Steps = UNSEEN,
) -> None:
    """Check a generation of each view in all its sinks, as `check_whole` does.

    Without verification a sink has to hold it whole, whatever its rows are.
    """
    for served, generation in targets:
        rows = history.rows([served.view])
        for name, sink in served.sinks.items():
            steps.begin(f"{served.view} {generation} in {name}")
            if verify is VerifyMode.NONE:
                sink.rows(generation)
            else:
                check_whole(served, name, generation, rows)
            steps.done()


def _proof(row: HistoryRow | None, sink: str) -> Mapping[str, Any]:
    """Return the certificate of a generation in a sink, empty without one."""
    report = row.certificate.get(sink, {}) if row is not None else {}
    certificate: Mapping[str, Any] = report.get("certificate", {})
    return certificate


def _types_in_delta(address: Address) -> dict[str, str]:
    schema = json.loads(DeltaTable(address.location["path"]).schema().to_json())
    return {field.name: field.dataType.simpleString() for field in StructType.fromJson(schema)}
