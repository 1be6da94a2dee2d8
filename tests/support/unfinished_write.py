"""Writes a generation of which the last rows never come; somebody ends the process meanwhile.

Usage: python -m tests.support.unfinished_write FOLDER; its file `sink` says what is written where.
"""

import sys
from pathlib import Path

from pyspark import cloudpickle

from replay.spark.session import SessionSettings, session
from tests.support.captured_project import SHORT_LIVED
from tests.support.faulty_line import gated_rows
from views.sinks.make import make_sink

ROWS = 60_000


def main():
    folder = Path(sys.argv[1])
    kind, view, settings, options = cloudpickle.loads((folder / "sink").read_bytes())
    spark = session(
        SessionSettings(
            master="local[1]",
            app_name="unfinished",
            warehouse=settings.warehouse or str(folder / "warehouse"),
            extra={"spark.driver.extraJavaOptions": SHORT_LIVED},
        )
    )
    sink = make_sink(kind, view=view, key=("id",), settings=settings, spark=spark, options=options)
    rows = gated_rows(spark, ROWS, folder / "never")
    sink.open(2, rows.schema)
    sink.write(rows)


if __name__ == "__main__":
    main()
