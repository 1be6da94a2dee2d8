"""docs/start.md from its first command to its last, on a database and a log of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from psycopg2.extensions import make_dsn

from tests.support.page import blocks_of, missing, printed, script_of
from tests.support.page_lines import reader_of
from tests.support.sql import execute

PAGE = Path(__file__).parents[2] / "docs" / "start.md"
ENDS = "kill $CAPTURE && wait $CAPTURE"
NARROW = (
    "changelog status",
    "changelog doctor",
    "changelog verify public.orders",
    "rebuild-view order_search --plan",
    "rebuild-view --history",
)
"""Commands that are shown on a small terminal too, before the page ends what it began."""


@pytest.mark.matrix
def test_whoever_follows_the_page_sees_what_it_shows(stack, tmp_path):
    blocks = blocks_of(PAGE)
    database = f"start{uuid.uuid4().hex[:8]}"
    endpoints = stack.endpoints()
    execute(endpoints.postgres, f"CREATE DATABASE {database}")
    dsn = make_dsn(endpoints.postgres, dbname=database)
    environment = reader_of(tmp_path, endpoints, dsn, database).environment
    script = script_of(blocks)
    assert script.count(ENDS) == 1
    narrow = [f"{sys.executable} -m tests.support.narrow {each}" for each in NARROW]
    environment = {**environment, "PYTHONPATH": str(PAGE.parents[1])}
    said, code = ran(script.replace(ENDS, "\n".join([*narrow, ENDS])), tmp_path, environment)
    said = said.replace(f"{database}.", "").replace(database, "shop")
    output = printed(said)
    lacks = {n: [*missing(each.prints, output.get(n, ""))] for n, each in enumerate(blocks)}
    lacking = {n: lines for n, lines in lacks.items() if lines}
    assert lacking == {}, f"{lacking} not in {said}"
    assert code == 0, said


def ran(script, folder, environment):
    """Return what a script of bash prints, and its exit code; what it began ends with it."""
    with subprocess.Popen(
        ["bash"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment,
        start_new_session=True,
    ) as bash:  # fmt: skip
        try:
            said, _ = bash.communicate(script, timeout=480)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGKILL)
    return said, bash.returncode
