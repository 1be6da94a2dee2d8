"""Which pipelines keep copies that equal their source: `make scoreboard`.

Each pipeline gets the same seeded workload (`benchmarks.scoreboard.workload`) on fresh databases,
is killed by SIGKILL three times meanwhile and started again. When the last row has arrived, or has
not after `--patience` seconds, `changelog verify` compares each table with its copy, row by row.

| word | meaning |
|---|---|
| lost | rows of the source that the copy lacks |
| kept | rows of the copy that the source does not have (any more) |
| wrong | rows with another value, stale or altered |
| no copy | there is none, or it cannot be compared, and why |

The last line is one JSON object. `--page` writes its table into docs/scoreboard.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.figures import say, tell
from benchmarks.machine import about
from benchmarks.orders import execute
from benchmarks.scoreboard.pipelines import PIPELINES, Pipeline, database_of
from benchmarks.scoreboard.programs import plugins
from benchmarks.scoreboard.workload import END, END_TABLE, SETUP, TABLES, Workload
from changelog.stack.stack import Stack

_POSTGRES = 15  # this build has the output plugin of pgsync, test_decoding
_KILLED_AT = (0.3, 0.55, 0.8)
_DOWN_S = 2.0
_READY_S = 600.0
_SETTLE_S = 5
_PAGE = Path(__file__).parents[2] / "docs" / "scoreboard.md"
_WORDS = {"missing": "lost", "unexpected": "kept", "differs": "wrong", "duplicated": "wrong"}


def compared(pipeline: Pipeline, table: str) -> dict[str, Any]:
    """Compare the copy of a table with its source; return the counts of differing rows."""
    words = [sys.executable, "-m", "changelog", "verify", f"public.{table}"]
    words += ["--source", pipeline.source, *pipeline.copy_of(table)]
    words += ["--settle", str(_SETTLE_S), "--show", "1000000", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    report = next((line for line in told if "differences" in line), None)
    if report is None:
        return {"no_copy": _last(told[-1]["error"] if told else done.stderr)}
    kinds = Counter(_WORDS[each["kind"]] for each in report["differences"])
    columns = Counter(name for each in report["differences"] for name in each["columns"])
    examples = {
        name: {**values, "key": each["key"]}
        for each in reversed(report["differences"])
        for name, values in each["columns"].items()
    }
    return {
        "rows": report["rows_source"],
        "rows_copy": report["rows_target"],
        **{word: kinds[word] for word in ("lost", "kept", "wrong")},
        "columns": dict(columns),
        "not_compared": report["not_compared"],
        "examples": examples,
        "open": len(report["open"]),
    }


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return re.sub(r"\s+", " ", " ".join(lines[-3:]))[:400]


def _arrived(pipeline: Pipeline, patience_s: float) -> float | None:
    """Wait until the copy has the last row; returns the seconds, or None."""
    began = time.monotonic()
    while time.monotonic() - began < patience_s:
        report = compared(pipeline, END_TABLE)
        if report.get("rows") == report.get("rows_copy") == 1:
            return round(time.monotonic() - began, 1)
        time.sleep(1)
    return None


def judged(
    kind: type[Pipeline], stack: Stack, folder: Path, cache: Path, workload: Workload,
    *, per_s: float, patience_s: float,
) -> dict[str, Any]:  # fmt: skip
    """Run one pipeline through the workload, and compare what it has with the source."""
    at = stack.endpoints()
    word = next(word for word, own in PIPELINES.items() if own is kind)
    source, target = (database_of(at.postgres, f"{word}_{side}") for side in ("source", "target"))
    execute(source, *SETUP)
    pipeline = kind(at, source, target, folder, cache)
    kills = iter(_KILLED_AT)
    next_kill = next(kills, None)

    def meanwhile(part: float) -> None:
        nonlocal next_kill
        if next_kill is not None and part >= next_kill:
            say(f"{kind.name}: killed at {part:.0%}")
            pipeline.kill()
            next_kill = next(kills, None)
            time.sleep(_DOWN_S)
            pipeline.start()

    say(f"{kind.name}: prepared")
    pipeline.prepare()
    pipeline.start()
    try:
        _wait_for_copies(pipeline)
        say(f"{kind.name}: has its first copies")
        workload.run(source, per_s=per_s, at=meanwhile)
        execute(source, f"INSERT INTO {END_TABLE} VALUES ({END})")
        seconds = _arrived(pipeline, patience_s)
        last = "is missing" if seconds is None else f"came after {seconds} s"
        say(f"{kind.name}: the last row {last}")
        tables = {
            table: {"left_out": why}
            if (why := kind.left_out.get(table))
            else compared(pipeline, table)
            for table in TABLES
        }
        ended = pipeline.ended()
    finally:
        pipeline.stop()
    (folder / "verdict.json").write_text(json.dumps(tables, indent=1), encoding="utf-8")
    return {
        "name": kind.name, "version": kind.version, "to": kind.kind, "settings": kind.settings,
        "last_row_s": seconds, "ended": ended, "tables": tables, "limits": dict(kind.limits),
    }  # fmt: skip


def _wait_for_copies(pipeline: Pipeline) -> None:
    """Wait until it has copied the rows that were there at first; `moved` is the largest table."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        reports = [compared(pipeline, table) for table in ("moved", "busy")]
        if all(report.get("rows", 0) == report.get("rows_copy") for report in reports):
            return
        time.sleep(1)
    raise SystemExit(f"{pipeline.name}: no first copies\n{pipeline.text_of_logs()}")


def page(result: Mapping[str, Any]) -> str:
    """Return the table of a result as Markdown."""
    boards = result["pipelines"]
    lines = ["| | " + " | ".join(f"{own['name']} {own['version']}" for own in boards) + " |"]
    lines.append("|---" * (1 + len(boards)) + "|")
    lines.append("| to | " + " | ".join(own["to"] for own in boards) + " |")
    lines += [
        f"| `{table}` | " + " | ".join(_cell(own, table) for own in boards) + " |"
        for table in TABLES
    ]
    late = f"not within {result['patience_s']:g} s"
    last = (late if own["last_row_s"] is None else f"{own['last_row_s']} s" for own in boards)
    lines.append("| the last row arrived after | " + " | ".join(last) + " |")
    return "\n".join(lines)


def _cell(own: Mapping[str, Any], table: str) -> str:
    report = own["tables"][table]
    limit = f" ({own['limits'][table]})" if table in own["limits"] else ""
    if "left_out" in report:
        return f"left out: {report['left_out']}"
    if "no_copy" in report:
        return f"no copy: {report['no_copy']}".replace("|", "/") + limit
    told = [f"{report[word]} {word}" for word in ("lost", "kept", "wrong") if report[word]]
    if report["columns"]:
        told.append("in " + ", ".join(f"`{name}` {n}" for name, n in report["columns"].items()))
    if report["not_compared"]:
        told.append("without " + ", ".join(f"`{name}`" for name in report["not_compared"]))
    return ("; ".join(told) + limit) if told else f"equal, {report['rows']} rows"


@contextmanager
def _servers(libraries: Path | None) -> Iterator[Stack]:
    settings = {"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20"}
    if libraries is not None:
        settings["dynamic_library_path"] = f"$libdir:{libraries}"
    with (
        tempfile.TemporaryDirectory(prefix="scoreboard-servers-") as place,
        Stack(
            Path(place),
            with_=("search", "cache"),
            postgres_settings=settings,
            postgres_version=_POSTGRES,
        ) as stack,
    ):
        Path(place).chmod(0o755)
        yield stack


def main(
    only: Annotated[str, typer.Option(help="Pipelines by comma.")] = ",".join(PIPELINES),
    seed: Annotated[int, typer.Option(help="Of the workload.")] = 1,
    transactions: Annotated[int, typer.Option(help="Their number.")] = 3_000,
    per_s: Annotated[float, typer.Option(help="Transactions a second, at most.")] = 40.0,
    patience_s: Annotated[float, typer.Option(help="Longest wait for the last row.")] = 180.0,
    cache: Annotated[Path, typer.Option(help="Where other programs are kept.")] = Path(
        "/var/tmp/scoreboard"  # noqa: S108 - large, and wanted again
    ),
    write_page: Annotated[bool, typer.Option("--page", help="Write docs/scoreboard.md.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A file for the result. Pipelines that are not run stay in it, if they had the "
            "same workload."
        ),
    ] = None,
) -> None:
    """Run the pipelines one after the other, and print what each has of the source."""
    boards = []
    words = only.split(",")
    libraries = plugins(cache, _POSTGRES) if "pgstream" in words else None
    with _servers(libraries) as stack:
        for word in words:
            kind = PIPELINES[word]
            folder = Path(tempfile.mkdtemp(prefix=f"scoreboard-{word}-"))
            workload = Workload(seed, transactions)
            boards.append(
                judged(kind, stack, folder, cache, workload, per_s=per_s, patience_s=patience_s)
            )
            say(f"{kind.name}: logs in {folder}")
    asked = {
        "seed": seed,
        "postgres": _POSTGRES,
        "patience_s": patience_s,
        "transactions": transactions,
    }
    result = {**asked, "pipelines": _with_those_of(out, asked, boards), **about()}
    print(page(result))
    if write_page:
        begin, end = "<!-- table -->", "<!-- end of table -->"
        text = _PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        _PAGE.write_text(f"{before}{begin}\n{page(result)}\n{end}{after}", encoding="utf-8")
    tell(result, out)


def _with_those_of(
    out: Path | None, asked: Mapping[str, Any], boards: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return pipelines in the order of the page, with the earlier results of some other ones."""
    before = json.loads(out.read_text("utf-8")) if out is not None and out.exists() else {}
    had = before.get("pipelines", []) if asked.items() <= before.items() else []
    by_name = {own["name"]: own for own in [*had, *boards]}
    return [by_name[kind.name] for kind in PIPELINES.values() if kind.name in by_name]


if __name__ == "__main__":
    typer.run(main)
