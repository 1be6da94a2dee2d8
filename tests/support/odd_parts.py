"""Tasks of a proof that wait, skip or forget, on whatever machine they run.

They travel with their code, since an executor has no tests.
"""

import sys
import time
import uuid
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from changelog.native import RecordColumns
from views.verify.log import spread
from views.verify.log.part import PartJob
from views.verify.records import topic

DEADLINE_S = 300


class WaitingJob(PartJob):
    """Has done its part, and waits until it is told before it gives the receipt."""

    def do(self, part):
        said = super().do(part)
        folder = Path(self.place.uri).parents[3] / "waiting"
        folder.mkdir(exist_ok=True)
        (folder / f"{part.number}-{uuid.uuid4().hex}").touch()
        deadline = time.monotonic() + DEADLINE_S
        while not (folder / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return said


class ForgettingJob(WaitingJob):
    """Does nothing in what is a second attempt."""

    def do(self, part):
        running = TaskContext.get()
        is_first = running is None or running.attemptNumber() == 0
        return super().do(part) if is_first else ""


class Skipping(RecordColumns):
    """Lets the records of one key go by."""

    def take(self, bucket):
        found = super().take(bucket)
        keeps = [not key.endswith(b"7") for key in found["key"].to_pylist()]
        return found.filter(pa.array(keeps, pa.bool_()))


class SkippingJob(PartJob):
    """Reads without the records of one key."""

    def do(self, part):
        with patch.object(topic, "RecordColumns", Skipping):
            return super().do(part)


def have(job):
    """Let tasks be of another kind."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    patch.object(spread, "PartJob", job).start()
