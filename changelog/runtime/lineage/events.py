"""Events in OpenLineage's form, and the client that sends them by its own configuration.

This alone imports the extra `[openlineage]`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    RunFacet,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    documentation_job,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    sql_job,
    test_run,
)
from openlineage.client.uuid import generate_new_uuid

from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.installed.joined import DISTRIBUTION
from changelog.runtime.lineage import facts

log = logging.getLogger("changelog.lineage")

_NAMESPACE = "changelog"
_PRODUCER = f"urn:changelog-store:{version(DISTRIBUTION)}"
_PARENT_PARTS = 3


def new_run_id() -> str:
    """Return the id of a run: a UUID that sorts by time."""
    return str(generate_new_uuid())


class Client:
    """Sends events where OpenLineage's configuration says."""

    def __init__(self) -> None:
        """Read the configuration.

        Raises ConfigurationError: it names no receiver; any other error: the library's own.
        """
        # Its lines go where ours go, without secrets; it has no handler of its own.
        logging.getLogger("openlineage").handlers[:] = logging.getLogger("changelog").handlers
        # Each attempt would be a line; how it ends is told.
        logging.getLogger("urllib3").addHandler(logging.NullHandler())
        named = {*os.environ}
        try:
            self._client = OpenLineageClient()
        finally:  # it sets further variables, which processes of ours would inherit
            for name in {*os.environ} - named:
                del os.environ[name]
        is_chosen = bool((self._client.config.transport or {}).get("type"))
        if self._client.transport.kind == "console" and not is_chosen:
            raise ConfigurationError("OpenLineage's configuration has no transport")
        self._namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or _NAMESPACE
        self._parent = parent_of(os.environ)

    def send(self, event: facts.Event) -> None:
        """Send an event; raises whatever the transport raises."""
        job, state = event.job, event.state
        self._client.emit(
            RunEvent(
                eventType=RunState[event.kind],
                eventTime=event.at.isoformat(),
                producer=_PRODUCER,
                run=Run(event.run_id, facets=_run_facets(state, event.error, self._parent)),
                job=Job(self._namespace, job.name, facets=_job_facets(job)),
                inputs=[_input(dataset) for dataset in state.inputs],
                outputs=[_output(dataset) for dataset in state.outputs],
            )
        )

    def close(self) -> None:
        """Wait for a transport that sends by itself."""
        self._client.close()


def parent_of(environ: Mapping[str, str]) -> parent_run.ParentRunFacet | None:
    """Return the run that started this process, as an orchestrator names it, or None.

    `OPENLINEAGE_CONTEXT` has it as JSON, `OPENLINEAGE_PARENT_ID` as `namespace/job/run`, with
    `OPENLINEAGE_ROOT_PARENT_ID` for the topmost one.
    """
    try:
        if text := environ.get("OPENLINEAGE_CONTEXT"):
            parent = json.loads(text)["parent"]
            return _parent(_ids(parent), _ids(parent["root"]) if "root" in parent else None)
        if text := environ.get("OPENLINEAGE_PARENT_ID"):
            root = environ.get("OPENLINEAGE_ROOT_PARENT_ID")
            return _parent(_parted(text), _parted(root) if root else None)
    except (ValueError, KeyError, TypeError) as error:
        log.warning("the parent of the run is not told: OPENLINEAGE_… cannot be read: %s", error)
    return None


def _ids(parent: Mapping[str, Any]) -> tuple[str, str, str]:
    return parent["job"]["namespace"], parent["job"]["name"], parent["run"]["runId"]


def _parted(text: str) -> tuple[str, str, str]:
    parts = text.split("/")
    if len(parts) != _PARENT_PARTS:
        raise ValueError("a parent is namespace/job/run")
    return parts[0], parts[1], parts[2]


def _parent(
    parent: tuple[str, str, str], root: tuple[str, str, str] | None
) -> parent_run.ParentRunFacet:
    namespace, name, run_id = parent
    root_namespace, root_name, root_id = root or parent
    return parent_run.ParentRunFacet(
        run=parent_run.Run(run_id),
        job=parent_run.Job(namespace, name),
        root=parent_run.Root(
            run=parent_run.RootRun(root_id), job=parent_run.RootJob(root_namespace, root_name)
        ),
        producer=_PRODUCER,
    )


def _run_facets(
    state: facts.RunState, error: str, parent: parent_run.ParentRunFacet | None
) -> dict[str, RunFacet]:
    facets: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=version(DISTRIBUTION), name=DISTRIBUTION, producer=_PRODUCER
        )
    }
    if parent is not None:
        facets["parent"] = parent
    if error:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=error, programmingLanguage="PYTHON", producer=_PRODUCER
        )
    tests = [
        test_run.TestExecution(
            name=f"{check.name} of {dataset.place.namespace} {dataset.place.name}",
            status="pass" if check.passed else "fail",
            severity="error",
            type=check.name,
            description=check.description,
            expected=check.expected,
            actual=check.actual,
            params=dict(check.parameters),
        )
        for dataset in state.outputs
        for check in dataset.checks
    ]
    if tests:
        facets["test"] = test_run.TestRunFacet(tests=tests, producer=_PRODUCER)
    return facets


def _job_facets(job: facts.Job) -> dict[str, JobFacet]:
    facets: dict[str, JobFacet] = {
        "jobType": job_type_job.JobTypeJobFacet(
            processingType="STREAMING" if job.is_streaming else "BATCH",
            integration="CHANGELOG",
            jobType=job.kind,
            producer=_PRODUCER,
        )
    }
    if job.description:
        facets["documentation"] = documentation_job.DocumentationJobFacet(
            description=job.description, producer=_PRODUCER
        )
    if job.query:
        facets["sql"] = sql_job.SQLJobFacet(
            query=job.query, dialect=job.dialect or None, producer=_PRODUCER
        )
    return facets


def _input(dataset: facts.Dataset) -> InputDataset:
    place = dataset.place
    return InputDataset(place.namespace, place.name, facets=_dataset_facets(dataset))


def _output(dataset: facts.Dataset) -> OutputDataset:
    place, facets = dataset.place, _dataset_facets(dataset)
    if dataset.sources:
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={
                column: column_lineage_dataset.Fields([_source(one) for one in sources])
                for column, sources in dataset.sources.items()
            },
            producer=_PRODUCER,
        )
    if dataset.checks:
        facets["dataQualityAssertions"] = _assertions(dataset.checks)
    output = OutputDataset(place.namespace, place.name, facets=facets)
    if dataset.rows is not None:
        output.outputFacets = {
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=dataset.rows, producer=_PRODUCER
            )
        }
    return output


def _dataset_facets(dataset: facts.Dataset) -> dict[str, Any]:
    facets: dict[str, DatasetFacet] = {}
    if dataset.columns:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(
            fields=[
                schema_dataset.SchemaDatasetFacetFields(name, kind, ordinal_position=place)
                for place, (name, kind) in enumerate(dataset.columns.items(), 1)
            ],
            producer=_PRODUCER,
        )
    if dataset.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            dataset.version, producer=_PRODUCER
        )
    return facets


def _source(source: facts.SourceColumn) -> column_lineage_dataset.InputField:
    how = column_lineage_dataset.Transformation(
        type="DIRECT",
        subtype="TRANSFORMATION" if source.is_masked else source.how,
        masking=source.is_masked,
    )
    place = source.place
    return column_lineage_dataset.InputField(place.namespace, place.name, source.column, [how])


def _assertions(
    checks: Sequence[facts.DatasetCheck],
) -> data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet:
    return data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
        assertions=[
            data_quality_assertions_dataset.Assertion(
                assertion=check.name,
                success=check.passed,
                severity="error",
                description=check.description,
                expected=check.expected,
                actual=check.actual,
                params=dict(check.parameters),
            )
            for check in checks
        ],
        producer=_PRODUCER,
    )
