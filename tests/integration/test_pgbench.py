"""A database of pgbench's making, loaded under capture, is proved equal to PostgreSQL."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from changelog.stack.servers.postgres import bin_dir
from tests.support.capture_command import CaptureCommand, capture_with

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow, pytest.mark.matrix]

SCALE = 1
LOAD_S = 8
KEYED = {"public.pgbench_accounts", "public.pgbench_branches", "public.pgbench_tellers"}


capture = capture_with(CaptureCommand)


def pgbench(*arguments):
    done = subprocess.run(
        [bin_dir() / "pgbench", *arguments], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def run_json(*command):
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run(
        [program, *command[1:]], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_keyed_table_equals_postgresql_after_the_load(capture):
    pgbench("-i", "-s", str(SCALE), "-q", capture.dsn)
    code, _, said = capture.run()
    assert code == 2
    assert "pgbench_history" in said
    capture.start("--exclude", "public.pgbench_history")
    pgbench("-c", "2", "-T", str(LOAD_S), capture.dsn)
    capture.settle()
    project = ("--project", str(capture.folder))
    (verified,) = capture.command("verify", "--json")
    tables = {table["table"]: table for table in verified["tables"]}
    assert set(tables) == KEYED
    assert all(table["mismatches"] == 0 for table in tables.values())
    assert tables["public.pgbench_accounts"]["rows"] == 100_000 * SCALE
    views = capture.folder / "views"
    views.mkdir()
    (views / "accounts.sql").write_text(
        "-- key: aid\n-- sinks: delta\nSELECT aid, bid, abalance FROM pgbench_accounts\n"
    )
    (view,) = run_json("rebuild-view", "accounts", *project, "--json")
    capture.stop()
    assert view["published"] is True
    assert view["verified"] is True
    assert (view["rows"], view["mismatches"]) == (100_000 * SCALE, 0)
