"""Compare a staged generation with the serving one, before readers see it.

Both are read back as the verifier reads what a sink serves, into DuckDB: in its bounded memory,
then in its files. Rows are matched by the view's key, values are compared exactly, and only a few
rows of each kind are shown. What differs in the columns themselves is told apart from the rows:
a column that only one generation has, or that has another type, is no reason why a row differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from views.base.config import RebuildSettings
from views.base.progress import Stages
from views.generations.history import GenerationHistory, HistoryRow
from views.generations.served import MakeServed, Served, served_of
from views.generations.staging import newest_staged
from views.project.spec import ViewSpec
from views.rebuild.read_back import DELTA, BuiltGeneration, UncomparableError
from views.rebuild.staged import nothing_staged
from views.verify.compare.compare import Comparison
from views.verify.compare.report import Mismatch
from views.verify.processes.scratch import MEMORY_LIMIT, scratch

SAMPLES = 10
"""So many rows of each kind are shown."""
_LONGEST = 1_000
_NARROW = 60
_BEFORE, _AFTER = "before", "after"
_KINDS = {"missing": "added", "extra": "removed", "different": "changed"}
"""What the comparison calls a row, the staged ones being expected, and what it is here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row, or of a changed row one value, that differs."""

    kind: str  # `added`, `removed` or `changed`, seen from what serves
    key: Mapping[str, str]  # the row's key as text
    column: str | None  # the column that differs; None when the whole row does
    before: str | None  # the value or row that serves, None when there is none or it is null
    after: str | None  # the same of the other generation

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "kind": self.kind,
            "key": dict(self.key),
            "column": self.column,
            "before": self.before,
            "after": self.after,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChanges:
    """Differences between the columns of two generations: names with their types."""

    added: Mapping[str, str]  # that only the newer one has
    removed: Mapping[str, str]  # that only the one that serves has
    retyped: Mapping[str, tuple[str, str]]  # that both have, with the type before and after

    @classmethod
    def of(cls, before: Mapping[str, str], after: Mapping[str, str]) -> ColumnChanges:
        """Compare names and types of columns."""
        return cls(
            added={name: kind for name, kind in after.items() if name not in before},
            removed={name: kind for name, kind in before.items() if name not in after},
            retyped={
                name: (before[name], kind)
                for name, kind in after.items()
                if before.get(name, kind) != kind
            },
        )

    def lines(self) -> list[str]:
        """Return the difference as lines for people."""
        return [
            *(f"column {name} is new: {kind}" for name, kind in self.added.items()),
            *(f"column {name} is gone: {kind}" for name, kind in self.removed.items()),
            *(
                f"column {name} was {old}, is {new}: its values are not compared"
                for name, (old, new) in self.retyped.items()
            ),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "added": dict(self.added),
            "removed": dict(self.removed),
            "retyped": {name: list(kinds) for name, kinds in self.retyped.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDiff:
    """The difference that a publication would make to readers of a view."""

    view: str  # its name
    sink: str  # where both generations were read
    serving: int  # the generation that serves
    generation: int  # the other one
    rows_serving: int  # rows of the one that serves
    rows: int  # rows of the other one
    added: int  # rows whose key only the other one has
    removed: int  # rows whose key only the one that serves has
    changed: int  # rows of one key that differ in a column that both have
    by_column: Mapping[str, int]  # in how many of these each column differs
    columns: ColumnChanges  # how the columns themselves differ
    samples: Sequence[Sample]  # the first rows of each kind, by key

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--diff --json`."""
        return {
            "view": self.view,
            "diff": True,
            "sink": self.sink,
            "serving": self.serving,
            "generation": self.generation,
            "rows_serving": self.rows_serving,
            "rows": self.rows,
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "by_column": dict(self.by_column),
            "columns": self.columns.to_json(),
            "samples": [sample.to_json() for sample in self.samples],
        }

    def render(self) -> Group:
        """Return it for a terminal."""
        title = (
            f"{self.view}: generation {self.generation} beside generation {self.serving}, which "
            f"serves (read in {self.sink})"
        )
        counts = (
            f"  {self.rows:,} rows, {self.rows_serving:,} now: {self.added:,} added, "
            f"{self.removed:,} removed, {self.changed:,} changed"
        )
        differ = (f"  {name} differs in {n:,} rows" for name, n in self.by_column.items())
        lines = [title, counts, *(f"  {line}" for line in self.columns.lines()), *differ]
        parts: list[RenderableType] = [Text(line) for line in lines]
        return Group(*parts, *([_samples_table(self.samples)] if self.samples else []))


def diff(
    spec: ViewSpec,
    settings: RebuildSettings,
    stages: Stages,
    *,
    generation: int | None = None,
    make_served: MakeServed = served_of,
) -> ViewDiff:
    """Compare a generation of a view with the one that serves; changes nothing.

    Raises:
        NothingStagedError: nothing is staged, and no generation is named.
        UncomparableError: nothing serves, the generation itself does, or their rows cannot be
            matched or read back.
        SinkError: the sink does not answer, or does not hold the generation whole.
    """
    history = GenerationHistory(settings.warehouse)
    served = make_served(spec, settings.project, None)
    number = generation if generation is not None else newest_staged(spec.name, history)
    if number is None:
        raise nothing_staged(spec.name)
    name, serving = _compared_at(served, number)
    rows = history.rows([spec.name])
    with stages.stage("diff", f"{spec.name}: generations {serving} and {number} in {name}"):
        sides = [_built(served, name, generation, rows, spec) for generation in (serving, number)]
        return _compared(spec.name, name, *sides)


def _compared_at(served: Served, number: int) -> tuple[str, int]:
    """Return a sink of the view, Delta if it has that, and the generation that it serves."""
    name = DELTA if DELTA in served.sinks else next(iter(served.sinks))
    serving = served.sinks[name].published()
    if serving is None:
        raise UncomparableError(
            f'of view "{served.view}" nothing serves yet in {name}',
            hint="read the generation at its address, then --publish or --abort it",
        )
    if serving == number:
        raise UncomparableError(
            f'generation {number} of view "{served.view}" serves: there is nothing to compare',
            hint="--diff GENERATION names another; --history lists them",
        )
    return name, serving


def _built(
    served: Served, sink: str, number: int, rows: Sequence[HistoryRow], spec: ViewSpec
) -> BuiltGeneration:
    built = BuiltGeneration.of(served, sink, number, rows)
    if built is None:
        raise UncomparableError(
            f'generation {number} of view "{spec.name}" cannot be compared in {sink}: its '
            "columns are not on record",
            hint="an older version of this program made it: rebuild the view, or read it at "
            f"{served.sinks[sink].address(number)}",
        )
    return built if built.key else replace(built, key=tuple(spec.key))


def _compared(view: str, sink: str, before: BuiltGeneration, after: BuiltGeneration) -> ViewDiff:
    common = [(n, k) for n, k in after.columns if before.types.get(n) == after.types[n]]
    _check_key(view, before, after, {name for name, _ in common})
    with scratch(None, MEMORY_LIMIT) as database:
        counts = {}
        for name, side in ((_BEFORE, before), (_AFTER, after)):
            counts[name] = side.read(database, name)
        compared = Comparison(
            database, expected=_AFTER, served=_BEFORE, columns=common, key=after.key
        )
        compared.run()
        kinds = {_KINDS[kind]: count for kind, count in compared.counts().items()}
        rows = [row for kind in _KINDS for row in compared.differences(SAMPLES, kind)]
        return ViewDiff(
            view=view,
            sink=sink,
            serving=before.number,
            generation=after.number,
            rows_serving=counts[_BEFORE],
            rows=counts[_AFTER],
            added=kinds.get("added", 0),
            removed=kinds.get("removed", 0),
            changed=kinds.get("changed", 0),
            by_column=compared.columns_that_differ(),
            columns=ColumnChanges.of(before.types, after.types),
            samples=[_sample(row) for row in rows],
        )


def _check_key(
    view: str, before: BuiltGeneration, after: BuiltGeneration, common: set[str]
) -> None:
    if set(before.key) == set(after.key) <= common:
        return
    keys = [
        ", ".join(f"{name} {side.types.get(name, '')}".strip() for name in side.key)
        for side in (before, after)
    ]
    raise UncomparableError(
        f'view "{view}": generation {before.number} has the key ({keys[0]}), generation '
        f"{after.number} has ({keys[1]}): their rows cannot be matched",
        hint=f"read both at their addresses: {before.address} and {after.address}",
    )


def _sample(row: Mismatch) -> Sample:
    return Sample(
        kind=_KINDS[row.kind],
        key=row.key,
        column=row.column,
        before=_cut(row.served, _LONGEST),
        after=_cut(row.expected, _LONGEST),
    )


def _cut(value: str | None, longest: int) -> str | None:
    return value if value is None or len(value) <= longest else value[: longest - 1] + "…"


def _samples_table(samples: Sequence[Sample]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("", "key", "column", "now", "then"):
        table.add_column(name, overflow="fold")
    for sample in samples:
        values = [
            _cut(value, _NARROW) if value is not None else "null" if sample.column else ""
            for value in (sample.before, sample.after)
        ]
        key = ", ".join(f"{name}={value}" for name, value in sample.key.items())
        table.add_row(
            sample.kind,
            Text(key),
            Text(sample.column or ""),
            *(Text(value or "") for value in values),
        )
    return table
