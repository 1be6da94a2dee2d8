"""The command `changelog test`, mounted through the entry-point group `changelog.commands`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from changelog.config import BROKERS, REGISTRY, Project, load_project
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import bar_console, print_json, say_error, tell
from changelog.runtime.examples import with_examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.options import DebugOption, JsonOption, ProjectOption
from changelog.runtime.setting import Given
from changelog.runtime.terminal import console
from replay.base.sections import Spark

if TYPE_CHECKING:
    from replay.spark.session import SessionSettings
    from views.cases.file import CaseFile
    from views.cases.run import Result
    from views.project.catalog import Catalog
    from views.project.spec import ViewSpec

_MASTER = "local[2]"


@with_examples(
    "`changelog test` all cases of the project",
    "`changelog test --init orders_per_customer` writes a first file of cases; then "
    "`changelog test orders_per_customer`",
)
@takes(Chosen(Spark, "master"))
def check_cases(
    views: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VIEW]...", help="Views; all that have cases when left out."),
    ] = None,
    project: ProjectOption = Path(),
    *,
    given: Given,
    init: Annotated[
        bool, typer.Option("--init", help="Write a first views/NAME.cases.toml for each instead.")
    ] = False,
    spark_only: Annotated[
        bool, typer.Option("--spark-only", help="Leave out DuckDB, for SQL that it cannot prove.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Test views on small tables, without servers: the cases of views/NAME.cases.toml.

    Each case is computed by Spark and, for views in SQL, by the verifier's DuckDB; both must give
    the expected rows. Ends with 0 when all cases pass, and with 1 when one does not.
    """
    check_extra("spark", "changelog test")
    from views.project.catalog import catalog_of

    settings = load_project(project, overrides=given, needs=[])
    catalog = catalog_of(settings)
    if init:
        _init(_without_cases(catalog, views), project, given, as_json=as_json)
        return
    files, unusable = usable_case_files(catalog, views)
    for error in unusable.values() if views or not files else ():
        raise error
    results = _run(files, settings, prove=not spark_only, as_json=as_json)
    from views.cases.report import summary

    if as_json:
        passed = not unusable and all(result.passed for result in results)
        print_json({"passed": passed, "cases": _plain(results)})
    tell(summary(results))
    for error in unusable.values():
        say_error(error)
    for error in unusable.values():
        raise typer.Exit(error.exit_code)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


def case_files(catalog: Catalog, views: list[str] | None) -> list[tuple[ViewSpec, CaseFile]]:
    """Return the cases of views; of all that have some when none is named.

    Raises ConfigurationError: no view has cases, or the cases of one cannot be used; ViewError: a
    view cannot be used.
    """
    files, unusable = usable_case_files(catalog, views)
    for error in unusable.values():
        raise error
    return files


def usable_case_files(
    catalog: Catalog, views: list[str] | None
) -> tuple[list[tuple[ViewSpec, CaseFile]], dict[str, ChangelogError]]:
    """Return the cases that can be run, and by view the error of cases that cannot."""
    from views.cases.file import SUFFIX, read_cases

    if not views:
        cases = sorted(catalog.root.glob(f"views/*{SUFFIX}"))
        views = [path.name.removesuffix(SUFFIX) for path in cases]
        if not views:
            raise ConfigurationError(
                f"no view in {catalog.root} has cases",
                hint=f"`changelog test --init VIEW` writes a first views/VIEW{SUFFIX}",
            )
    files: list[tuple[ViewSpec, CaseFile]] = []
    unusable: dict[str, ChangelogError] = {}
    for view in views:
        try:
            spec = catalog.load(view)
            files.append((spec, read_cases(spec)))
        except ChangelogError as error:
            unusable[view] = error
    return files, unusable


def _without_cases(catalog: Catalog, views: list[str] | None) -> list[ViewSpec]:
    """Return the views that get a file of cases: the named ones, or all without one."""
    from views.cases.file import path_of
    from views.project.history import refuse_history

    specs = catalog.load_all(views or None)
    if not views:
        specs = [spec for spec in specs if not spec.history]
    for spec in specs:
        refuse_history(spec, "a case has rows of tables, not their versions", "test other views")
    there = [path_of(spec) for spec in specs if path_of(spec).exists()]
    without_file = [spec for spec in specs if path_of(spec) not in there]
    if there and (views or not without_file):
        raise ConfigurationError(
            f"{', '.join(map(str, there))} is there already", hint="nothing was written"
        )
    return without_file


def _run(
    files: list[tuple[ViewSpec, CaseFile]], settings: Project, *, prove: bool, as_json: bool
) -> list[Result]:
    # Here, since they bring Spark, and `changelog --help` loads this module.
    from changelog.runtime.progress.bar import StepBar
    from replay.spark.connect import release
    from replay.spark.session import session
    from views.cases.report import tell_result
    from views.cases.run import run_cases

    out = Console(stderr=as_json)
    # Results and bar on one terminal have one console, which draws the bar below them.
    shown = bar_console(as_json=as_json)
    shown = out if out.is_terminal and shown.is_terminal else shown
    cases = sum(len(file.cases) for _, file in files)
    with tempfile.TemporaryDirectory() as folder, StepBar(shown, "testing", cases) as steps:
        steps.begin("Spark starts")
        spark = session(case_session(settings, folder))
        try:
            return run_cases(
                spark, files, prove=prove, say=lambda result: tell_result(out, result), steps=steps
            )
        finally:
            release()


def case_session(settings: Project, folder: str) -> SessionSettings:
    """Return the settings of a small session: the project's for SQL, but not its master."""
    from replay.spark.session import SessionSettings

    spark = settings.section(Spark)
    is_near = spark.master.startswith("sc://")
    own = {name: value for name, value in spark.settings.items() if name.startswith("spark.sql.")}
    return SessionSettings(
        master=spark.master if is_near else _MASTER,
        app_name="changelog test",
        warehouse=None if is_near else folder,
        extra={"spark.sql.shuffle.partitions": "1", **own},
    )


def _init(specs: list[ViewSpec], project: Path, overrides: Given, *, as_json: bool) -> None:
    from views.base.config import RebuildSettings
    from views.cases.skeleton import types_of_log, write_skeleton

    written = []
    for spec in specs:
        try:
            settings = load_project(project, overrides=overrides, needs=[BROKERS, REGISTRY])
            types = types_of_log(spec, RebuildSettings(project=settings))
        except ChangelogError as error:
            types = {}
            console.print(f"without the columns' types: {error}", highlight=False, markup=False)
        written.append(write_skeleton(spec, types))
        tell(f"wrote {written[-1]}")
    if as_json:
        print_json({"files": [str(path) for path in written]})


def _plain(results: list[Result]) -> list[dict[str, object]]:
    return [result.to_json() for result in results]
