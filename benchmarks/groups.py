"""What groups of tables cost and bring: `make bench-groups`.

Two tables of six columns (about 200 bytes a row), rows in transactions of 100, half of them in each
table. Capture is stopped, the rows are written, capture is started again, with one slot for both
tables or one for each, until the slots stand behind them. CPU seconds count, of the WAL senders and
of capture without its start; the time does too where nothing else runs. The last line is one JSON
object of medians.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.figures import Figures, say, tell
from benchmarks.line import DEADLINE_S, POSTGRES, Line
from benchmarks.machine import Noise, about, cpu_s
from benchmarks.orders import execute
from changelog.stack.stack import Stack

TABLES = ("lines_a", "lines_b")
GROUP = "b"
_NAP_S = 0.02

_MAKE = """
DROP TABLE IF EXISTS {name};
CREATE TABLE {name} (id bigint PRIMARY KEY, customer_id bigint, status text,
    amount numeric(12, 2), created_at timestamptz, note text)
"""
_FILL = """
DO $$
BEGIN
  FOR part IN 0..{transactions} - 1 LOOP
    INSERT INTO lines_a SELECT n, n * 7919 % 250000, 'pending', n * 37 % 1000000 / 100.0, now(),
                               repeat('note of the row ', 8) FROM
      generate_series(part * 50, part * 50 + 49) n;
    INSERT INTO lines_b SELECT n, n * 7919 % 250000, 'pending', n * 37 % 1000000 / 100.0, now(),
                               repeat('note of the row ', 8) FROM
      generate_series(part * 50, part * 50 + 49) n;
    COMMIT;
  END LOOP;
END $$
"""


def main(
    runs: Annotated[int, typer.Option(help="Runs of each; the medians are told.")] = 3,
    rows: Annotated[int, typer.Option(help="Rows, of both tables together.")] = 300_000,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Measure one slot and two."""
    figures = Figures()
    noise = Noise([])
    with (
        tempfile.TemporaryDirectory(prefix="bench-groups-") as folder,
        Stack(Path(folder) / "stack", postgres_settings=POSTGRES) as stack,
    ):
        Path(folder).chmod(0o755)
        for number in range(1, runs + 1):
            for slots in (1, 2):
                _measure(stack, Path(folder), f"g{number}_{slots}", slots, rows, figures)
        others = round(noise.share(), 4)
    tell({**figures.medians(), "rows": rows, "runs": runs, "noise": others, **about()}, out)


def _measure(
    stack: Stack, folder: Path, name: str, slots: int, rows: int, figures: Figures
) -> None:
    groups = f'groups.{GROUP} = ["public.{TABLES[1]}"]' if slots > 1 else ""
    line = Line(stack, folder, name, settings=groups, table="lines_*")
    execute(line.dsn, *(_MAKE.format(name=each) for each in TABLES))
    line.start()
    _wait_behind(line, slots, _end(line))
    line.stop()
    execute(line.dsn, _FILL.format(transactions=rows // 100))
    end = _end(line)
    pid = line.start()
    senders = _senders(line, slots)
    began, before = time.monotonic(), [cpu_s(each) for each in (pid, *senders)]
    _wait_behind(line, slots, end)
    seconds = time.monotonic() - began
    spent = [cpu_s(each) - old for each, old in zip((pid, *senders), before, strict=True)]
    line.stop()
    of = "slot" if slots == 1 else "slots"
    figures.add(f"{slots}_{of}_senders_cpu_s", sum(spent[1:]))
    figures.add(f"{slots}_{of}_busiest_sender_cpu_s", max(spent[1:]))
    figures.add(f"{slots}_{of}_capture_cpu_s", spent[0])
    figures.add(f"{slots}_{of}_seconds", seconds)
    told = " + ".join(f"{each:.2f}" for each in spent[1:])
    say(f"{slots} {of}: senders {told} s CPU, capture {spent[0]:.2f} s, {seconds:.2f} s")
    execute(
        line.dsn,
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        f"WHERE slot_name LIKE '{name}%'",
        *(f"DROP PUBLICATION {each}" for each in (name, f"{name}_{GROUP}")[:slots]),
    )


def _senders(line: Line, slots: int) -> list[int]:
    """Wait until every slot is read; return the processes that send them."""
    query = (
        "SELECT active_pid FROM pg_replication_slots "
        f"WHERE active AND slot_name LIKE '{line.slot}%' ORDER BY slot_name"
    )
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = [int(str(pid)) for (pid,) in execute(line.dsn, query)]
        if len(found) == slots:
            return found
        time.sleep(_NAP_S)
    raise SystemExit((line.project / "capture.log").read_text(encoding="utf-8"))


def _end(line: Line) -> str:
    """Return where the WAL ends, and write a commit behind that, which moves slots past it."""
    ((end,),) = execute(line.dsn, "SELECT pg_current_wal_insert_lsn()")
    execute(line.dsn, "SELECT pg_logical_emit_message(true, 'bench', '')")
    return str(end)


def _wait_behind(line: Line, slots: int, end: str) -> None:
    """Wait until every slot stands behind an LSN."""
    query = (
        f"SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= '{end}' "
        f"AND slot_name LIKE '{line.slot}%'"
    )
    deadline = time.monotonic() + DEADLINE_S
    while execute(line.dsn, query) != [(slots,)]:
        if time.monotonic() > deadline:
            raise SystemExit((line.project / "capture.log").read_text(encoding="utf-8"))
        time.sleep(_NAP_S)


if __name__ == "__main__":
    typer.run(main)
