"""What a command's help lists is what its source says, and costs no import of it."""

import subprocess
import sys

import pytest
from typer.main import get_command

from changelog.cli import app
from changelog.runtime.installed.joined import described, joined

HEAVY = ("pyspark", "duckdb", "pyarrow", "confluent_kafka", "psycopg2", "sqlglot", "pandas")


@pytest.mark.parametrize("entry", joined("changelog.commands"), ids=lambda entry: entry.name)
def test_what_is_listed_is_what_the_command_says_of_itself(entry) -> None:
    said = described(entry)
    group = get_command(app)
    loaded = group.get_command(None, entry.name)  # type: ignore[attr-defined]
    assert said
    assert said.splitlines()[0] == loaded.help.splitlines()[0]


@pytest.mark.parametrize("command", ["changelog.cli", "views.cli"])
def test_help_loads_nothing_that_does_the_work(command) -> None:
    text = f"""
import sys
from {command} import main
sys.argv = ["it", "--help"]
try:
    main()
finally:
    print(*sorted(set(sys.modules) & {set(HEAVY)!r}), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert "Usage" in ran.stdout
    assert not ran.stderr.split(), ran.stderr
