"""The state of a declared log: by Spark, and verified by DuckDB."""

from __future__ import annotations

import uuid

from replay.base.config import OnBadRecord, ReplaySettings
from replay.base.failures import translated
from replay.declared.declared import make_declared_cut, open_declared
from views.base.address import Address
from views.verify.compare.evidence import Evidence
from views.verify.view import VerifyRequest, verify_view


class DeclaredState:
    """Result of a replay of a log, and the verifier's verdict on it."""

    def __init__(self, spark, folder):
        self.spark, self.folder = spark, folder

    def __call__(self, log, of, *, quarantine=False):
        on_bad = OnBadRecord.QUARANTINE if quarantine else OnBadRecord.FAIL
        settings = ReplaySettings(on_bad_record=on_bad)
        cut = make_declared_cut(log.kafka, [of], settings=settings)
        replay = open_declared(self.spark, log.kafka, log.registry, cut, [of])
        state = replay.states[of.table]
        path = str(self.folder / uuid.uuid4().hex)
        with translated():
            state.frame.write.format("delta").save(path)
            self.quarantined = state.quarantined.collect() if state.quarantined is not None else []
        replay.recheck()
        request = VerifyRequest(
            kafka=log.kafka,
            registry=log.registry,
            frontier=replay.frontier,
            view=of.table.table,
            tables=(of.table,),
            sql=None,
            key=of.key,
            schema=(),
            address=Address("delta", {}),
            states={of.table: Address("delta", {"path": path})},
        )
        with Evidence(
            log.kafka,
            log.registry,
            replay.frontier,
            pins=replay.pins,
            quarantines=quarantine,
            declared=[of],
        ) as evidence:
            self.report = verify_view(request, evidence)
        self.verdict = str(cut.verdict)
        self.frame = self.spark.read.format("delta").load(path)
        return {row["id"]: tuple(row)[1:] for row in self.frame.collect()}
