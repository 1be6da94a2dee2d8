"""Topics of every form that capture writes: Spark's state, the verifier's and the source agree."""

from __future__ import annotations

import uuid

import pytest
from pyspark.sql import functions as F  # noqa: N812

from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import Kind
from replay.broker.topics import read_frontier
from replay.decode import documents
from replay.pipeline.replay import Replay
from tests.integration.test_every_type import EVERYTHING, ROWS
from tests.support.capture_command import CaptureCommand, capture_with
from tests.support.matrix import first
from tests.support.replays import replay_of
from views.base.address import Address
from views.verify.compare.evidence import Evidence
from views.verify.compare.report import VerifyReport
from views.verify.source.source import SourceRequest, verify_source
from views.verify.view import VerifyRequest, verify_view

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

TABLES = tuple(TableName("public", name) for name in ("everything", "Odd name", "never"))
FORMS = [
    ("json", "nested"),
    ("avro", "flat"),
    ("avro", "nested"),
    ("json", "row"),
    ("json", "flat"),
]
SETUP = (
    EVERYTHING,
    """CREATE TABLE "Odd name" ("a""b""é" text, n numeric(9, 2), "op" integer[],
    PRIMARY KEY (n, "a""b""é"))""",
    "CREATE TABLE never (id integer PRIMARY KEY, text text)",
    *ROWS,
    """INSERT INTO "Odd name" VALUES (E'x''"\\\\ü', 1.10, '{1,NULL}'), ('gone', -2, '{}')""",
)
CHANGES = (
    "UPDATE everything SET t = 'new', i8 = 7 WHERE id = 1",
    "UPDATE everything SET id = id + 100 WHERE id IN (2, 3)",  # another key
    "DELETE FROM everything WHERE id = 4",
    """DELETE FROM "Odd name" WHERE n = -2""",
    "ALTER TABLE everything ADD later numeric(5, 1)",  # old records know nothing of it
    "INSERT INTO everything (id, later) VALUES (7, 1.5)",
    """INSERT INTO "Odd name" VALUES ('gone', -2, NULL)""",
)


capture = capture_with(CaptureCommand)


def replayed(capture, spark, registry, tables=TABLES) -> Replay:
    record = read_frontier(capture.kafka, frontier_topic(capture.prefix), capture.prefix)
    return replay_of(spark, capture.kafka, registry, record, tables)


def certified(capture, registry, replay: Replay) -> VerifyReport:
    """Write what Spark made of the log, and have the verifier compare all of it with its own."""
    states = {}
    for table, state in replay.states.items():
        path = str(capture.folder / uuid.uuid4().hex)
        state.frame.write.format("delta").save(path)
        states[table] = Address("delta", {"path": path})
    request = VerifyRequest(
        kafka=capture.kafka,
        registry=registry,
        frontier=replay.frontier,
        view="states",
        tables=tuple(states),
        sql=None,
        key=("id",),
        schema=(),
        address=Address("delta", {}),
        states=states,
    )
    with Evidence(capture.kafka, registry, replay.frontier, pins=replay.pins) as evidence:
        return verify_view(request, evidence)


@pytest.mark.matrix
@pytest.mark.parametrize(("output", "envelope"), first(1, FORMS))
def test_a_topic_of_any_form_rebuilds_to_the_table(
    capture, spark, registry, monkeypatch, output, envelope
):
    settings = capture.folder / "changelog.toml"
    settings.write_text(
        settings.read_text() + f'output_format = "{output}"\nenvelope = "{envelope}"\n'
    )
    capture.sql(*SETUP)
    capture.catch_up()
    for statement in CHANGES:
        capture.sql(statement)
    capture.catch_up()

    report = certified(capture, registry, replayed(capture, spark, registry))
    assert (report.mismatches, report.differences) == (0, ())
    assert (report.rows_expected, report.rows_served) == (8, 8)
    source = verify_source(
        SourceRequest(
            postgres=capture.dsn,
            kafka=capture.kafka,
            registry=registry,
            slot=capture.prefix,
            publication=capture.prefix,
            topic_prefix=capture.prefix,
        )
    )
    assert {each.view: (each.verified, each.rows_expected) for each in source} == {
        "public.everything": (True, 6),
        "public.Odd name": (True, 2),
        "public.never": (True, 0),
    }
    if output == "json":  # a reader that takes every boolean for true
        monkeypatch.setitem(documents._SIMPLE, Kind.BOOLEAN, lambda text: F.lit(True))
        wrong = certified(capture, registry, replayed(capture, spark, registry, TABLES[:1]))
        assert {each.column for each in wrong.differences} == {"bo"}
