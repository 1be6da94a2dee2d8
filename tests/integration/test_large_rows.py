"""Rows larger than a topic takes: named with the way out, which then works, to the last reader."""

import subprocess
import sys

import pytest

from changelog.kafka.cluster import describe
from tests.support.capture_command import CrashingCapture, capture_with

pytestmark = [pytest.mark.services, pytest.mark.slow]

MIB = 1 << 20
WIDE = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, {}))"
"""A text that does not compress to less than half."""


capture = capture_with(CrashingCapture, notes=20)


def widen(capture, number, size):
    capture.sql(f"UPDATE notes SET text = {WIDE.format(size // 32)} WHERE id = {number}")


def limit(capture):
    topic = f"{capture.prefix}.notes"
    return int(describe(capture.kafka, [topic])[topic].settings["max.message.bytes"])


@pytest.mark.parametrize(
    "size", [3 * MIB, pytest.param(48 * MIB, marks=pytest.mark.matrix)], ids=["3 MiB", "48 MiB"]
)
@pytest.mark.parametrize("streamed", [True, pytest.param(False, marks=pytest.mark.matrix)])
def test_a_row_over_the_limit_ends_capture_and_the_hint_is_the_way_out(capture, size, streamed):
    if streamed:
        capture.catch_up()
    widen(capture, 7, size)
    code, _, said = capture.run("--until", "now")
    assert code == 1
    assert f'topic "{capture.prefix}.notes" does not take a record' in said
    assert "`-T max.message.bytes=BYTES --fix-topics`" in said

    asked = ("-T", f"max.message.bytes={2 * size}")
    code, _, said = capture.run("--until", "now", *asked)
    assert code == 2
    assert f"max.message.bytes is 1048588, must be {2 * size}" in said
    assert "--fix-topics alters them" in said
    capture.catch_up(*asked, "--fix-topics")
    capture.check()
    assert limit(capture) == 2 * size
    (report,) = capture.command("verify", "--json")
    assert (report["verified"], report["tables"][0]["rows"]) == (True, 20)
    capture.catch_up("-T", f"max.message.bytes={size}")  # more room is no difference
    assert limit(capture) == 2 * size


@pytest.mark.matrix
def test_a_rebuild_reads_rows_larger_than_its_fetches(capture):
    size = 40 * MIB
    widen(capture, 7, size)
    widen(capture, 8, 20 * MIB)
    path = capture.folder / "changelog.toml"
    path.write_text(path.read_text() + f'[capture.topic]\n"max.message.bytes" = "{2 * size}"\n')
    capture.catch_up()
    (capture.folder / "views").mkdir()
    text = "-- key: id\n-- sinks: delta\nSELECT id, length(text) AS size FROM notes"
    (capture.folder / "views" / "sizes.sql").write_text(text)
    run = "from views.cli import main; main()"
    words = [sys.executable, "-c", run, "sizes", "--project", str(capture.folder), "--json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert '"verified": true' in done.stdout


@pytest.mark.matrix
def test_a_size_that_is_no_number_is_refused(capture):
    code, _, said = capture.run("-T", "max.message.bytes=10MB", "--until", "now")
    assert code == 2
    assert "max.message.bytes is no whole number of bytes" in said
