"""README.md: its commands, on a database and a log of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.page_lines import block_of, plain, reader_of

pytestmark = pytest.mark.matrix
ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def test_the_commands_for_a_database_of_your_own_run(endpoints, dsn, prefix, tmp_path):
    before = reader_of(tmp_path, endpoints, dsn, prefix, CHANGELOG_POSTGRES_DSN=dsn)
    begin, *commands = map(plain, block_of(README, "sh", "changelog init").text.splitlines())
    before.run(begin)
    before.run('psql -q "$DATABASE" -f shop/example.sql')
    shell = type(before)(tmp_path / "shop", before.environment)
    said: dict[str, str] = {}
    for command in commands:
        if command.endswith("--follow"):
            said[command] = shell.follow(command, lambda text: "orders_per_customer" in text)
        elif command == "changelog doctor":
            # All is well while capture runs, as it does without `--until`.
            with shell.capturing(prefix):
                said[command] = shell.run(command)
        else:
            said[command] = shell.run(
                f"{command} 2>&1", answer="y\n" * 9 if "teardown" in command else ""
            )
        if command == "rebuild-view --all":
            table = DeltaTable(str(shell.folder / "warehouse" / "orders_per_customer"))
            amounts = table.to_pyarrow_table(columns=["amount"]).column("amount").to_pylist()
            assert sorted(map(str, amounts)) == ["0.00", "120.00", "24.90"]
    assert list(said) == [
        "changelog capture --check", "changelog capture --until now", "rebuild-view --all --plan",
        "rebuild-view --all", "rebuild-view --all --follow", "changelog doctor",
        "changelog teardown",
    ]  # fmt: skip
    assert "exact" in said["rebuild-view --all --plan"]
    left = "SELECT count(*) FROM pg_publication, pg_replication_slots WHERE slot_name = '{}'"
    assert shell.sql(left.format(prefix)).strip() == "0"


def test_the_demo_runs(downloads, tmp_path):
    demo, tests = map(plain, block_of(README, "sh", "make demo").text.splitlines())
    assert tests == "make test"  # runs this one
    ran = subprocess.run(
        [*demo.split(), f"ARGS=--json --dir {tmp_path / 'demo'}"],
        cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1])
