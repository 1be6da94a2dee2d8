"""How long `changelog verify --target` takes beside COPY of the table: `make bench-verify`.

One table of PostgreSQL with nine columns and two copies of it, a file of Parquet and another table,
each of them equal, and again with one row that differs in one digit. The measure is `COPY table TO
STDOUT` by psql into nothing. Everything is done in turn, with a checkpoint before it; one round
goes before and does not count. Times are those of the whole command, from its start to its end, and
memory is the greatest of its process. With `--peer FOLDER` reladiff, another program that compares
tables, is installed there and compares the same two tables with all columns in the same rounds.

`…_vs_copy` is how many times the time of COPY. The last line is one JSON object of medians.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import duckdb
import psutil
import psycopg2
import typer

from benchmarks.figures import Figures, say, tell
from benchmarks.machine import Memory, Noise
from benchmarks.peer_environment import installed
from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer, bin_dir

RELADIFF = "0.6.0"
_TABLE = """
CREATE TABLE orders (
  id bigint PRIMARY KEY, customer_id bigint, status text, amount numeric(12,2),
  created_at timestamptz, updated_at timestamp, active boolean, score double precision, note text
);
INSERT INTO orders SELECT n, n * 7919 % 100003, (ARRAY['open', 'paid', 'sent'])[1 + n % 3],
  (n * 37 % 10000019)::numeric / 100, timestamptz '2024-01-01' + n * interval '1.000001 s',
  timestamp '2024-01-01' + n * interval '7 s', n % 5 = 0, n / 7.0, 'note ' || md5(n::text)
FROM generate_series(1::bigint, {rows}) AS n;
CREATE TABLE copy (LIKE orders INCLUDING ALL);
INSERT INTO copy SELECT * FROM orders;
CREATE TABLE copy_one (LIKE orders INCLUDING ALL);
INSERT INTO copy_one SELECT * FROM orders;
UPDATE copy_one SET amount = amount + 0.01 WHERE id = {rows} / 2;
VACUUM ANALYZE
"""
_PARQUET = """
COPY (SELECT * FROM read_csv('{csv}', header = true, columns = {{
  'id': 'BIGINT', 'customer_id': 'BIGINT', 'status': 'VARCHAR', 'amount': 'DECIMAL(12,2)',
  'created_at': 'TIMESTAMPTZ', 'updated_at': 'TIMESTAMP', 'active': 'BOOLEAN', 'score': 'DOUBLE',
  'note': 'VARCHAR'}})) TO '{file}' (FORMAT parquet)
"""


class Bench:
    """A server with a table and its copies."""

    def __init__(self, dsn: str, folder: Path, rows: int) -> None:
        """Make the table and the copies."""
        self.dsn, self.folder, self.rows = dsn, folder, rows
        self.figures = Figures()
        self.peaks_mb: dict[str, float] = {}
        for statement in _TABLE.format(rows=rows).split(";"):
            self.execute(statement)
        for table, name in (("copy", "equal"), ("copy_one", "one")):
            csv = folder / f"{name}.csv"
            self.execute(f"COPY (SELECT * FROM {table}) TO '{csv}' (FORMAT csv, HEADER)")
            with duckdb.connect() as database:
                database.execute("SET TimeZone = 'UTC'")
                database.execute(_PARQUET.format(csv=csv, file=folder / f"{name}.parquet"))

    def execute(self, statement: str) -> None:
        """Run one statement."""
        with closing(psycopg2.connect(self.dsn)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)

    def timed(self, name: str, words: Sequence[str], *, counts: bool) -> tuple[int, bytes]:
        """Run a program, keep its time and memory, and return its exit code and output."""
        self.execute("CHECKPOINT")
        output = self.folder / "output"
        began = time.monotonic()
        with output.open("wb") as out:
            process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)
            memory = Memory(process.pid)
            while process.poll() is None:
                memory.look()
                time.sleep(0.01)
        took_s = time.monotonic() - began
        suffix = "" if counts else ", not counted"
        say(f"{name}: {took_s:.2f} s, {memory.peak_mb:.0f} MB{suffix}")
        if counts:
            self.figures.add(f"{name}_s", took_s)
            self.peaks_mb[name] = max(self.peaks_mb.get(name, 0.0), memory.peak_mb)
        return process.returncode, output.read_bytes()

    def copy(self, *, counts: bool) -> None:
        """Have psql read the table, and write it nowhere."""
        words = [str(bin_dir() / "psql"), "-q", "-d", self.dsn, "-o", os.devnull]
        code, output = self.timed("copy", [*words, "-c", "COPY orders TO STDOUT"], counts=counts)
        if code:
            raise SystemExit(output.decode())

    def verify(self, name: str, target: str, mismatches: int, *, counts: bool) -> None:
        """Compare the table with a copy, which has so many differing rows."""
        words = [sys.executable, "-m", "changelog", "verify", "orders", "--source", self.dsn]
        words += ["--target", target, "--settle", "0", "--json"]
        code, output = self.timed(name, words, counts=counts)
        lines = [line for line in output.decode().splitlines() if line.startswith('{"verified"')]
        report: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        found = (code, report.get("mismatches"), report.get("rows_source"))
        if found != (3 if mismatches else 0, mismatches, self.rows) or report.get("not_compared"):
            raise SystemExit(f"{found}: {output.decode()[-2000:]}")
        if counts:
            self.figures.add(f"{name}_inside_s", report["seconds"])

    def reladiff(
        self, name: str, command: Path, table: str, mismatches: int, *, counts: bool
    ) -> None:
        """Have reladiff compare the table with another one of the same server."""
        words = [str(command), self.dsn, "orders", self.dsn, table, "-k", "id", "-c", "%"]
        code, output = self.timed(name, words, counts=counts)
        lines = [line for line in output.decode().splitlines() if line[:2] in {"+ ", "- "}]
        if code or len(lines) != 2 * mismatches:
            raise SystemExit(f"reladiff ended with {code}: {output.decode()[-2000:]}")


def main(
    runs: Annotated[int, typer.Option(help="Rounds; the medians are told.")] = 3,
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 1_000_000,
    peer: Annotated[
        Path | None, typer.Option(help="Folder to install reladiff in; without it no peer.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Measure comparisons of copies beside COPY of the table."""
    command = peer and installed(peer, "reladiff", RELADIFF, "psycopg2-binary") / "reladiff"
    with tempfile.TemporaryDirectory(prefix="bench-verify-") as place:
        folder = Path(place)
        folder.chmod(0o777)  # the server runs as another user
        server = PostgresServer(folder / "postgres", pick([]))
        server.start()
        try:
            noise = Noise([pid] if (pid := server.pid) else [])
            bench = Bench(server.dsn, folder, rows)
            for number in range(runs + 1):
                counts = number > 0
                bench.copy(counts=counts)
                for name, table, mismatches in (("equal", "copy", 0), ("one", "copy_one", 1)):
                    targets = {
                        "postgres": f"postgres:{server.dsn}/{table}",
                        "parquet": f"parquet:{folder}/{name}.parquet",
                    }
                    for kind, target in targets.items():
                        bench.verify(f"{kind}_{name}", target, mismatches, counts=counts)
                    if command is not None:
                        bench.reladiff(
                            f"reladiff_{name}", command, table, mismatches, counts=counts
                        )
            told: dict[str, Any] = dict(bench.figures.medians())
            told |= {f"{name}_peak_mb": round(mb) for name, mb in bench.peaks_mb.items()}
            told |= {"rows": rows, "runs": runs, "noise": round(noise.share(), 3)}
        finally:
            server.stop()
    for name in [name for name in told if name.endswith("_s") and name != "copy_s"]:
        told[f"{name.removesuffix('_s')}_vs_copy"] = round(told[name] / told["copy_s"], 2)
    tell({**told, "cores": psutil.cpu_count()}, out)


if __name__ == "__main__":
    typer.run(main)
