"""`changelog verify`: the log against PostgreSQL itself, table by table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from changelog.compare.options import CopyOptions
from changelog.config import Project, load_project
from changelog.contract.base.errors import ConfigurationError, RefutedError, VerdictError
from changelog.contract.rows.relation import TableName
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import bar_console, print_json, tell
from changelog.runtime.examples import with_examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.options import (
    JsonOption,
    ProjectOption,
)
from changelog.runtime.progress.bar import StepBar
from changelog.runtime.setting import Given
from changelog.runtime.terminal import console
from changelog.sections import SLOT, CaptureSettings, Kafka, Postgres, Registry

if TYPE_CHECKING:
    from views.verify.compare.report import VerifyReport
    from views.verify.source.source import SourceRequest

_VERDICTS = {
    True: "[green]equal[/green]",
    False: "[red]differs[/red]",
    None: "[yellow]open[/yellow]",
}

_UNREAD = ("is excluded", "is not there", "cannot be read")
"""The beginnings of notes on tables that should have been compared and were not."""


@with_examples(
    "`changelog verify` all captured tables, while a capture runs",
    "`changelog verify orders sales.items --timeout 300 --json` two of them, for a program",
    "`changelog verify orders --source postgresql://me@db/shop --target "
    "postgres:postgresql://me@other/shop` a copy that any program fills, while both are written",
    "`changelog verify orders --source postgresql://me@db/shop --target "
    "'parquet:orders/*.parquet' --certificate orders.json --certificate-key key.pem` with a signed "
    "account of the comparison, which `changelog verify orders.json` reads",
    "`changelog verify warehouse/_certificates/orders_by_customer/000000000007.json` a certificate "
    "of a view, against what is served now",
    "`changelog verify --view orders_by_customer --view stock` what two views serve, against "
    "PostgreSQL's answers to their queries",
    "`changelog verify --source postgresql://me@db/shop/orders --target 'parquet:orders/*.parquet' "
    "--key id --columns '*,price=unit_price'` files, where a column has another name",
)
@takes(Chosen(Postgres), Chosen(Kafka), Chosen(Registry), Chosen(CaptureSettings, *SLOT))
def verify(
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Tables, as table or schema.table; all captured ones when left out."),
    ] = None,
    project: ProjectOption = Path(),
    *,
    given: Given,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait until capture has passed the snapshot.")
    ] = 60.0,
    copy: CopyOptions,
    view: Annotated[
        list[str] | None,
        typer.Option(
            "--view",
            metavar="NAME",
            help="Compare what the sinks of this view serve with PostgreSQL's own answer to its "
            "query; several times for several views.",
        ),
    ] = None,
    public_key: Annotated[
        str,
        typer.Option(
            "--public-key",
            metavar="FILE",
            help="Of certificates: require a signature by this Ed25519 public key, in PEM.",
        ),
    ] = "",
    as_sql: Annotated[
        str,
        typer.Option(
            "--as-sql",
            metavar="TABLE",
            help="Of one certificate: print the query that computes its digests of this table of "
            "PostgreSQL, for psql.",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Compare the log, or any copy, with PostgreSQL, while both go on; or check certificates.

    The log is compared row by row at one LSN. With --target it is a copy of one table or query,
    whatever fills it; docs/verify-anything.md shows how. With --view it is what a view's sinks
    serve, against PostgreSQL's own answer to the view's query. Files whose names end with .json are
    certificates: those of views are compared with what is served, those of comparisons tell of
    then; docs/certificate.md.

    Ends with 0 when every table is equal, with 3 when one differs, and with 4 when one is excluded,
    or one that was named cannot be compared, such as a topic that holds only a part of its table's
    history.
    """
    copy.check_alone(of_views=bool(view))
    files = [Path(name) for name in tables or () if name.endswith(".json")]
    if (public_key or as_sql or files) and not view:
        _certificates(tables or (), files, project, given, copy, public_key, as_sql, as_json)
        return
    check_extra("verify", "changelog verify")
    if view:
        _views(tables or (), view, project, given, copy, timeout, as_json)
        return
    if copy.target:
        from changelog.compare.command import verify_copy

        verify_copy(copy, tables or (), project, given, as_json=as_json)
        return
    from views.verify.source.source import verify_source

    settings = load_project(project, overrides=given)
    if settings.capture.source:
        tell(f'comparing source "{settings.capture.source}" with its log')
    request = _request(settings, tuple(_table_name(text) for text in tables or ()), timeout)
    with StepBar(bar_console(as_json=as_json), "comparing") as steps:
        reports = verify_source(
            request, say=lambda text: console.print(text, style="dim"), steps=steps
        )
    if as_json:
        print_json(_as_json(reports))
    else:
        show(reports)
    refuted = [report for report in reports if report.verified is False]
    if refuted:
        raise RefutedError(
            f"{len(refuted)} of {len(reports)} tables differ from the source: "
            f"{', '.join(report.view for report in refuted)}",
            hint="report how it came about; a fresh copy mends the log: `changelog resnapshot "
            f"{' '.join(report.view for report in refuted)}`",
        )
    unverified = [report for report in reports if report.verified is None]
    if not tables:
        # Other tables have nothing to compare, such as a log of changes without older rows.
        unverified = [
            report
            for report in unverified
            if any(note.startswith(_UNREAD) for note in report.notes)
        ]
    if unverified:
        raise VerdictError(
            "; ".join(
                f"{report.view} is not verified: {', '.join(report.notes)}" for report in unverified
            )
        )


def _views(
    tables: Sequence[str],
    views: Sequence[str],
    project: Path,
    overrides: Mapping[str, Any],
    copy: CopyOptions,
    timeout: float,
    as_json: bool,
) -> None:
    if tables:
        raise ConfigurationError(
            "tables and views are compared by commands of their own",
            hint="changelog verify TABLE…, or changelog verify --view NAME…",
        )
    check_extra("spark", "comparing what a view serves")
    from views.answers.command import verify_views

    verify_views(views, project, overrides, copy, timeout_s=timeout, as_json=as_json)


def _certificates(
    names: Sequence[str],
    files: Sequence[Path],
    project: Path,
    overrides: Mapping[str, Any],
    copy: CopyOptions,
    public_key: str,
    as_sql: str,
    as_json: bool,
) -> None:
    if not files or len(files) != len(names) or copy.target or (as_sql and len(files) != 1):
        raise ConfigurationError(
            "certificates are files whose names end with .json, and nothing else goes with them",
            hint="changelog verify CERT.json…; with --as-sql one of them",
        )
    from changelog.attestation.file import StatementFile
    from changelog.compare.certificate_command import is_comparison, show_comparisons
    from views.erase.certificate import is_erasure, show_erasures

    key = Path(public_key) if public_key else None
    read = [StatementFile.read(path, key) for path in files]
    if all(map(is_erasure, read)) and not as_sql:
        show_erasures(read, as_json=as_json)
        return
    of_comparisons = [file for file in read if is_comparison(file)]
    if not of_comparisons:
        check_extra("spark", "checking a certificate of a view")
        from views.certificates.command import print_statement, verify_certificates

        if as_sql:
            print_statement(read[0], as_sql)
        else:
            verify_certificates(read, project, overrides, as_json=as_json)
        return
    if as_sql:
        raise ConfigurationError(
            f"{files[0]} is of a comparison and has no digests of rows",
            hint="--as-sql is for certificates of views",
        )
    if len(of_comparisons) < len(read):
        raise ConfigurationError(
            "certificates of views and of comparisons are checked by commands of their own",
            hint=f"changelog verify {of_comparisons[0].path}",
        )
    show_comparisons(of_comparisons, as_json=as_json)


def _request(settings: Project, tables: tuple[TableName, ...], timeout: float) -> SourceRequest:
    from views.verify.source.source import SourceRequest

    return SourceRequest(
        postgres=settings.postgres,
        kafka=settings.kafka,
        registry=settings.registry,
        slot=settings.slot,
        publication=settings.capture.publication,
        groups=tuple(group.publication for group in settings.capture.slot_groups),
        topic_prefix=settings.topic_prefix,
        tables=tables,
        timeout_seconds=timeout,
    )


def _table_name(text: str) -> TableName:
    name = TableName.parse(text)
    if name is None:
        raise ConfigurationError(
            f"{text!r} does not name a table",
            hint='write table or schema.table; a part with a dot in "quotes"',
        )
    return name


def _as_json(reports: tuple[VerifyReport, ...]) -> dict[str, object]:
    verdicts = [report.verified for report in reports]
    verified = False if False in verdicts else None if None in verdicts else True
    return {
        "verified": verified,
        "mismatches": sum(report.mismatches for report in reports),
        "tables": [
            {"table": report.view, "rows": report.rows_expected, **report.to_json()}
            for report in reports
        ],
    }


def show(reports: tuple[VerifyReport, ...]) -> None:
    """Print the reports as a table for people."""
    out = Console()
    table = Table(title="The log against PostgreSQL")
    for name in ("table", "verdict"):
        table.add_column(name, overflow="fold")  # cut off, two names could come out alike
    for name in ("rows in PostgreSQL", "rows on the log", "mismatches", "seconds"):
        table.add_column(name, justify="right")
    for report in reports:
        table.add_row(
            Text(report.view),
            _VERDICTS[report.verified],
            f"{report.rows_expected:,}",
            f"{report.rows_served:,}",
            f"{report.mismatches:,}",
            f"{report.seconds:.1f}",
        )
    out.print(table)
    for report in reports:
        if report.differences or report.notes:
            out.print(report.render())
