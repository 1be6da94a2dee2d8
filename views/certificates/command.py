"""`changelog verify CERT.json`: checks certificates, prints the reports, chooses the exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from changelog.attestation.file import StatementFile
from changelog.config import FILE_NAME, Project, load_project
from changelog.contract.base.errors import RefutedError
from changelog.runtime.edge import print_json, tell
from replay.base.sections import warehouse_of
from views.certificates.check import (
    CertificateReport,
    check_chain,
    check_rows,
    check_store,
)
from views.certificates.postgres_digest import digest_statement
from views.certificates.statement import Certificate
from views.certificates.store import CertificateStore
from views.generations.served import served_of
from views.project.catalog import catalog_of
from views.verify.values.types import parse_type


def verify_certificates(
    files: Sequence[StatementFile],
    folder: Path,
    overrides: Mapping[str, Any],
    *,
    as_json: bool = False,
) -> None:
    """Check certificates, and in a project their chain and the rows that are served too.

    Raises RefutedError: one is of another generation than what serves, not of the chain, or its
    rows differ, or it is no certificate of a view; SinkError: a sink does not answer.
    """
    reports = [
        CertificateReport(file=file, certificate=Certificate.of(file.statement, str(file.path)))
        for file in files
    ]
    reports.sort(key=lambda report: (report.certificate.view, report.certificate.generation))
    _check_among_themselves(reports)
    if (folder / FILE_NAME).is_file():
        project = load_project(folder, overrides=overrides, needs=[])
        for report in reports:
            _check_in(project, report)
    else:
        tell(f"no {FILE_NAME} in {folder}: the documents alone are checked, not what is served")
    for report in reports:
        if as_json:
            print_json(report.to_json())
        else:
            print("\n".join(report.lines()))
    refuted = [report for report in reports if report.problems]
    if refuted:
        first = refuted[0]
        raise RefutedError(
            f'the certificate of view "{first.certificate.view}", generation '
            f"{first.certificate.generation}, does not hold: {first.problems[0]}",
            hint="rebuild the view with --certificate for one of what serves now",
        )


def _check_among_themselves(reports: Sequence[CertificateReport]) -> None:
    for view in dict.fromkeys(report.certificate.view for report in reports):
        own = [report for report in reports if report.certificate.view == view]
        for place, problem in check_chain([report.certificate for report in own]):
            own[place].problems.append(problem)


def _check_in(project: Project, report: CertificateReport) -> None:
    view = report.certificate.view
    catalog = catalog_of(project)
    if view not in catalog.names:
        report.notes.append(f'the project has no view "{view}": its rows were not compared')
        return
    check_store(report, CertificateStore(warehouse_of(project), view))
    check_rows(report, served_of(catalog.load(view), project, None))


def print_statement(file: StatementFile, relation: str) -> None:
    """Print the query that computes in psql the digests that a certificate lists.

    `relation`: the table that serves the rows, as SQL names it.

    Raises RefutedError: it is no certificate of a view.
    """
    certificate = Certificate.of(file.statement, str(file.path))
    columns = [(name, parse_type(kind)) for name, kind in certificate.columns]
    places = {entry["sink"]: entry["location"] for entry in certificate.predicate["sinks"]}
    names = json.loads(places.get("postgres", {}).get("columns", "{}"))
    print(digest_statement(relation, columns, certificate.key, names) + ";")
