"""A log written by hand, what a replay makes of it, and what the verifier says to that."""

from __future__ import annotations

import uuid

from changelog.contract.rows.codec import FRAME_BYTES
from replay.base.config import ReplaySettings
from replay.base.failures import translated
from tests.support.log_writer import LogWriter
from tests.support.replays import replay_of
from views.base.address import Address
from views.verify.compare.evidence import Evidence
from views.verify.view import VerifyRequest, verify_view


class CertifiedLog:
    """A log of `things`, what a replay makes of it, and what the verifier does."""

    def __init__(self, spark, kafka, registry, prefix, folder, relation, *, settings=None, **more):
        self.spark, self.registry, self.folder = spark, registry, folder
        self.table, self.settings = relation.name, settings or ReplaySettings()
        self.log = LogWriter(kafka, registry, relation, prefix=prefix, **more)

    @property
    def value_frame(self) -> bytes:
        columns = len(self.log.relation.columns)
        return self.log.codec.encode_value((b"0", *[None] * (columns - 1)))[:FRAME_BYTES]

    def put(self, number: int, value: bytes | None, **more) -> None:
        self.log.put_raw(self.log.codec.encode_key((b"%d" % number,)), value, **more)

    def replay(self, settings=None, *, record=None):
        record = record or self.log.freeze()
        kafka = self.log.kafka
        chosen = settings or self.settings
        return replay_of(self.spark, kafka, self.registry, record, [self.table], settings=chosen)

    def outcome(self, replay, *, pins=True):
        """Return the ids of the rows, quarantined records by their places, and the verification."""
        state = replay.states[self.table]
        path = str(self.folder / uuid.uuid4().hex)
        with translated():
            state.frame.write.format("delta").save(path)
            found = state.quarantined.collect() if state.quarantined is not None else []
        request = VerifyRequest(
            kafka=self.log.kafka,
            registry=self.registry,
            frontier=replay.frontier,
            view="things",
            tables=(self.table,),
            sql=None,
            key=("id",),
            schema=(),
            address=Address("delta", {}),
            states={self.table: Address("delta", {"path": path})},
        )
        with Evidence(
            self.log.kafka,
            self.registry,
            replay.frontier,
            pins=replay.pins if pins else None,
            quarantines=state.quarantined is not None,
        ) as evidence:
            report = verify_view(request, evidence)
        rows = {row.id for row in self.spark.read.format("delta").load(path).collect()}
        return rows, {(row.partition, row.offset): row for row in found}, report
