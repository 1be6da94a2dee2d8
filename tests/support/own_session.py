"""Commands in a process of their own, one after the other, with one Spark session for all.

Reads lists of words, one JSON array a line, and answers each by a line of JSON. The first word
tells what is done: `rebuild-view` is the command, `count` asks Delta in Spark for the rows
of a table, `settings` lists those of Spark and those of Hadoop.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from views import cli


class OwnSession:
    """The process, seen from a test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *words: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        return answer

    def kill(self) -> None:
        """End the process at once, in the middle of a command."""
        self._process.kill()


@contextmanager
def own_session(environ: Mapping[str, str]) -> Iterator[OwnSession]:
    """The process with some names in its environment, while the block runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.own_session"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    with process:
        try:
            yield OwnSession(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(30)
            finally:
                process.kill()


def _command(words: list[str]) -> dict[str, Any]:
    sys.argv = words
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    results = [json.loads(line) for line in out.getvalue().splitlines() if line.startswith("{")]
    return {"code": code, "results": results, "out": out.getvalue(), "err": err.getvalue()}


def _answer(words: list[str]) -> dict[str, Any]:
    if words[0] == "rebuild-view":
        return _command(words)
    from pyspark.sql import SparkSession

    spark = SparkSession.active()
    if words[0] == "count":
        return {"rows": spark.read.format("delta").load(words[1]).count()}
    hadoop, seen = spark._jsc.hadoopConfiguration().iterator(), {}
    while hadoop.hasNext():
        each = hadoop.next()
        seen[each.getKey()] = each.getValue()
    return {"spark": dict(spark.sparkContext.getConf().getAll()), "hadoop": seen}


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the JVM prints is no answer
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
