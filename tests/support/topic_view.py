"""A view in a topic that goes forward without Spark: what a follower writes, by hand."""

import uuid
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from changelog.config import load_project
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.stack.base.state import Endpoints
from tests.support.captured_project import write_settings
from views.generations.served import served_of
from views.project.catalog import catalog_of
from views.sinks.base import GONE
from views.sinks.topic.register import RegisteredGeneration
from views.sinks.topic.sink import TopicSink

Rows = dict[int, str]
DECLARED = "-- key: id\n-- sinks: topic\n-- description: Who there is\nSELECT id, name FROM names"
SCHEMA = StructType([StructField("id", LongType()), StructField("name", StringType())])


class TopicView:
    """The view `names`, id to name, in a topic; its project has it declared."""

    def __init__(self, root: Path) -> None:
        self.root = root
        project = load_project(root, needs=["brokers"])
        sink = served_of(catalog_of(project).load("names"), project, None).sinks["topic"]
        assert isinstance(sink, TopicSink)
        self.sink = sink
        self.truth: dict[tuple[str, int], Rows] = {}
        self._now: dict[int, Rows] = {}
        self._at: dict[int, int] = {}

    @classmethod
    def alone(cls, root: Path, endpoints: Endpoints) -> "TopicView":
        """Return it in a project that has nothing else, and no source."""
        write_settings(root, endpoints, "dbname=none", f"r{uuid.uuid4().hex[:10]}")
        (root / "views").mkdir()
        (root / "views" / "names.sql").write_text(DECLARED, encoding="utf-8")
        return cls(root)

    def build(self, generation: int, lsn: int, rows: Rows) -> None:
        """Make a generation that nobody sees yet."""
        self.sink.open(generation, SCHEMA)
        held = self.sink._read().generations[generation]
        self.sink._note(generation, RegisteredGeneration(held.value, held.ids, rows=0))
        self._now[generation] = {}
        self.forward(generation, lsn, rows)

    def forward(self, generation: int, lsn: int, changes: Mapping[int, str | None]) -> None:
        """Bring a generation to an LSN by some rows, None for one that is gone."""
        delta = pa.table(
            {
                "id": pa.array([*changes], pa.int64()),
                "name": pa.array([*changes.values()], pa.string()),
                GONE: pa.array([each is None for each in changes.values()]),
            }
        )
        rows = {**self._now[generation], **changes}
        left = {key: name for key, name in rows.items() if name is not None}
        self.truth[str(Lsn(lsn)), generation] = left
        values = self.sink.delta_values(SCHEMA, delta)
        told = pa.table({GONE: delta[GONE], **values})
        self.sink.apply(generation, SCHEMA, told, Position(1, Lsn(lsn), 0))
        self._now[generation], self._at[generation] = left, lsn

    def publish(self, generation: int) -> None:
        self.sink.publish(generation)
