"""docs/start.md from its first command to its last, on a database and a log of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from contextlib import closing, suppress
from pathlib import Path

import psycopg2
from psycopg2.extensions import make_dsn

from tests.support.page import blocks_of, missing, printed, script_of
from tests.support.page_lines import reader_of

PAGE = Path(__file__).parents[2] / "docs" / "start.md"


def test_whoever_follows_the_page_sees_what_it_shows(stack, tmp_path):
    blocks = blocks_of(PAGE)
    database = f"start{uuid.uuid4().hex[:8]}"
    endpoints = stack.endpoints()
    with closing(psycopg2.connect(endpoints.postgres)) as admin:
        admin.autocommit = True
        admin.cursor().execute(f"CREATE DATABASE {database}")
    dsn = make_dsn(endpoints.postgres, dbname=database)
    environment = reader_of(tmp_path, endpoints, dsn, database).environment
    said, code = ran(script_of(blocks), tmp_path, environment)
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
