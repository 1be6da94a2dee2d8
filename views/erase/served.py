"""The views that read a table: which of them can be freed of its rows, and how they are.

A view's rows may be made of a row in any way, so nothing is searched for in them. Every generation
from before goes, whole, and one that was built and proved without the row serves. What is left when
a generation goes is known for each kind of sink that is covered; a view with another one is refused
before anything begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from psycopg2 import errors, sql

from changelog.config import Project
from changelog.contract.base.errors import ChangelogError, ConfigurationError, SinkError
from changelog.contract.rows.relation import TableName
from changelog.runtime.parquet import table_of
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.base.sections import Logs, warehouse_of
from replay.spark.files import Files, uri_of
from replay.store.checkpoint import FOLDER as CHECKPOINTS
from views.base.config import RebuildSettings
from views.generations.history import ABORTED, DROPPED, RETIRED, GenerationHistory, HistoryRow
from views.generations.served import Served, served_of
from views.generations.succession import staged
from views.project.catalog import catalog_of
from views.project.spec import ViewSpec
from views.rebuild.drop import to_drop
from views.rebuild.local.kept import kept_of, remove_of
from views.rebuild.one_view.certify import FOLDER as PROOFS_AT_WORK
from views.rebuild.one_view.refused import FOLDER as REFUSED_ROWS
from views.rebuild.one_view.refused import QUARANTINE_FOLDER
from views.sinks.cache.values import CacheOptions
from views.sinks.delta.options import delta_options
from views.sinks.options import read_options
from views.sinks.postgres.options import SwapMode, postgres_options
from views.sinks.postgres.sink import PostgresSink
from views.verify.kept.folder import FOLDER as PROVED
from views.verify.kept.folder import remove_kept

COVERED = ("delta", "postgres", "cache", "iceberg", "search")
"""Kinds of sinks in which nothing of a generation is left when it is removed."""
_STATISTICS = "SELECT pg_relation_filenode('pg_catalog.pg_statistic')"
_ASKED_TIMES = 10
_KEPT_ROWS = re.compile(r"\n\D*(\d+) dead row versions cannot be removed yet")


@dataclass(frozen=True, slots=True)
class ReadingView:
    """A view that reads the table and has generations."""

    spec: ViewSpec
    generations: Mapping[str, Sequence[int]]  # by sink

    @property
    def name(self) -> str:
        """Return the view's name."""
        return self.spec.name


@dataclass(slots=True)
class ReadingViews:
    """The views that read a table, and what forbids to free them."""

    views: list[ReadingView] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def reading_views(project: Project, table: TableName, topic: str) -> ReadingViews:
    """Look up the views of a project that read a table, in all sinks where they are or were.

    Raises ChangelogError: a view's file cannot be read, or a sink does not answer.
    """
    reading, settings = ReadingViews(), RebuildSettings(project=project)
    warehouse, files = uri_of(warehouse_of(project)), Files()
    logs = project.section(Logs).captured
    tables = {table, *(log.table for log in logs if log.topic == topic)}
    history = GenerationHistory(warehouse_of(project))
    last = {row.view: row.state for row in history.rows()}
    names = {view for view, state in last.items() if state != DROPPED}
    has_folder = (project.root / "views").is_dir()
    catalog = catalog_of(project) if has_folder or names else None
    specs = {spec.name: spec for spec in catalog.load_all()} if catalog and catalog.names else {}
    for name in sorted(names - {*specs}):
        reading.refusals.append(
            f'view "{name}" has no file any more, so nobody knows what it reads: '
            f"rebuild-view {name} --drop"
        )
    for name in sorted(specs):
        if not tables & {*specs[name].tables}:
            continue
        (dropped,) = to_drop([name], settings)
        spec = replace(specs[name], sinks=dropped.sinks, options=dropped.spec.options)
        holdings = served_of(spec, project, None).held()
        generations = {sink: sorted(holding.generations) for sink, holding in holdings.items()}
        if not any(generations.values()):
            continue
        for sink in {*generations} - {*specs[name].sinks}:
            if generations[sink]:
                reading.refusals.append(
                    f'view "{name}" is in {sink} too, where its file no longer puts it: '
                    f"rebuild-view {name} --drop, then build it again"
                )
        reading.refusals += _refusals(specs[name], warehouse)
        reading.views.append(ReadingView(specs[name], generations))
    for folder in (REFUSED_ROWS, QUARANTINE_FOLDER):
        if files.exists(f"{warehouse}/{folder}"):
            reading.refusals.append(
                f"the table {warehouse}/{folder} may have keys or records of the rows: remove the "
                "folder when it has been looked at"
            )
    return reading


def _refusals(spec: ViewSpec, warehouse: str) -> Iterator[str]:
    """Yield what of a view cannot be freed of a row yet."""
    options = {sink: spec.options.get(sink, {}) for sink in spec.sinks}
    for sink in spec.sinks:
        if sink not in COVERED:
            yield f'view "{spec.name}" is in {sink}, which is not covered yet'
    if "delta" in options and delta_options(spec.name, options["delta"], spec.key).lays_out:
        yield (
            f'view "{spec.name}": its Delta table is laid out by values ({spec.name}.delta.json), '
            "and the table's log keeps these"
        )
    elif "delta" in options and _log_has_values(f"{uri_of(warehouse)}/{spec.name}/_delta_log"):
        yield (
            f'view "{spec.name}": the log of its Delta table has values of columns, of when it was '
            f"laid out by them: rebuild-view {spec.name} --drop, then build it again"
        )
    if "postgres" in options:
        mode = postgres_options(spec.name, options["postgres"]).mode
        if mode is not SwapMode.EXCHANGE:
            yield f'view "{spec.name}" is in a table of PostgreSQL that stays ({mode.value})'
    if "cache" in options:
        cache = read_options(CacheOptions, spec.name, "cache", options["cache"])
        if cache.ttl_seconds is not None:
            yield (
                f'view "{spec.name}": entries of the cache stay {cache.ttl_seconds} s after their '
                f"generation (ttl_seconds in {spec.name}.cache.json)"
            )


def _log_has_values(folder: str) -> bool:
    """Tell whether the log of a Delta table has bounds of columns, or values of partitions."""
    files = Files()
    for name in files.names(folder):
        if name.endswith(".json"):
            text = files.read(f"{folder}/{name}")
            if b"minValues" in text or b'"partitionValues":{"' in text:
                return True
        elif name.endswith(".parquet"):
            for row in table_of(files.read(f"{folder}/{name}")).to_pylist():
                add = row.get("add") or {}
                if "minValues" in str(add.get("stats")) or add.get("partitionValues"):
                    return True
    return False


def retire_others(spec: ViewSpec, project: Project, steps: Steps = UNSEEN) -> int:
    """Remove all generations of a view but the one that serves; returns that one's number.

    For a caller that holds the view's locks.

    Raises SinkError: its sinks serve different generations, or one does not answer.
    """
    served = served_of(spec, project, None)
    history = GenerationHistory(warehouse_of(project))
    states = history.states(spec.name)
    number, gone = _serving(served), set[int]()
    steps.more(len(served.sinks))
    for name, sink in served.sinks.items():
        steps.begin(f"{spec.name} in {name}")
        for generation in sink.generations():
            if generation != number:
                sink.discard(generation)
                gone.add(generation)
        steps.done()
    waiting = {*staged(states)}
    rewrite_statistics(spec, project)
    history.append(
        HistoryRow(
            view=spec.name,
            generation=generation,
            state=ABORTED if generation in waiting else RETIRED,
            note="keys were erased",
        )
        for generation in sorted(gone | waiting)
    )
    return number


def _serving(served: Served) -> int:
    numbers = {sink.published() for sink in served.sinks.values()}
    number = numbers.pop() if len(numbers) == 1 else None
    if number is None:
        raise SinkError(
            f'the sinks of view "{served.view}" do not serve one generation',
            hint=f"rebuild-view {served.view}",
        )
    return number


def remaining_of(spec: ViewSpec, project: Project, least: int) -> list[str]:
    """Return the traces of generations before one, by looking at each sink again.

    `least`: the first generation that was built without the rows.

    Raises SinkError: a sink does not answer.
    """
    served, traces = served_of(spec, project, None), []
    for name, sink in served.sinks.items():
        traces += [
            f'view "{spec.name}": {name} has generation {generation}'
            for generation in sink.generations()
            if generation < least
        ]
    if "delta" in spec.sinks:
        stable = f"{uri_of(warehouse_of(project))}/{spec.name}"
        for file in Files().sizes(stable):
            folder, _, rest = file.partition("/")
            number = rest.partition("/")[0]
            is_ours = folder == "_generations" and number.isdecimal() and int(number) >= least
            if folder != "_delta_log" and not is_ours:
                traces.append(f"the file {stable}/{file}")
    return traces


def rewrite_statistics(spec: ViewSpec, project: Project) -> bool | None:
    """Have the PostgreSQL of a view rewrite its statistics, which had values of removed tables.

    A removed row of a catalogue is in its file until that is written again. It is locked for that
    long, so whoever plans a query waits.

    Returns:
        Whether no removed row is in them any more; it passes that over for a role that does not own
        the database, and keeps rows that a slot or an old transaction may still see. None for a
        view that is not in PostgreSQL.

    Raises SinkError: it does not answer.
    """
    sink = served_of(spec, project, None).sinks.get("postgres")
    if not isinstance(sink, PostgresSink):
        return None
    with sink.database.connection() as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(*sink.target)))
        cursor.execute(_STATISTICS)
        before = cursor.fetchone()
        cursor.execute("SET lock_timeout = '200ms'")
        connection.notices.clear()
        for _ in range(_ASKED_TIMES):
            with suppress(errors.LockNotAvailable):
                cursor.execute("VACUUM (FULL, VERBOSE) pg_catalog.pg_statistic")
                break
        kept_rows = _KEPT_ROWS.search("".join(connection.notices))
        cursor.execute(_STATISTICS)
        return cursor.fetchone() != before and kept_rows is not None and kept_rows[1] == "0"


def remove_kept_states(
    project: Project, topic: str, views: Sequence[str], first: Mapping[str, int]
) -> list[str]:
    """Remove the states of a topic that are kept in the warehouse; returns the places looked at.

    For a caller that holds the locks of all views.

    `first`: of each view that has been rebuilt the first generation without the rows.

    Raises ChangelogError: another process uses one of them.
    """
    warehouse, files = warehouse_of(project), Files()
    root = uri_of(warehouse)
    places = [f"{root}/{CHECKPOINTS}/{topic}", f"{root}/{PROVED}/{topic}"]
    files.remove(places[0])
    remove_kept(root, [topic])
    files.remove(f"{root}/{PROOFS_AT_WORK}")
    remove_of(root, views)
    in_use = [place for place in places if files.sizes(place)]
    in_use += [str(path) for path in kept_of(root, views)]
    if in_use:
        raise ChangelogError(
            f"kept states of the rows are in use: {', '.join(in_use)}",
            hint="end what reads them (followers, rebuilds), then run it again",
        )
    GenerationHistory(warehouse).forget_rows(first)
    return [*places, f"{root}/{PROOFS_AT_WORK}", f"{root}/_followed", f"{root}/_history"]


def refuse(reading: ReadingViews) -> None:
    """Refuse views that cannot be freed of a row.

    Raises ConfigurationError: there is one; names each with the reason.
    """
    if reading.refusals:
        raise ConfigurationError(
            f"nothing was begun: {'; '.join(reading.refusals)}",
            hint="docs/erase.md says which sinks are covered",
        )
