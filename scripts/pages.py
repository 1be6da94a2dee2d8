"""Write the pages of the reference that are made of the code, and the dashboard for Grafana.

Commands, exit codes, metrics, and the records on the log.

`python -m scripts.pages` writes them below docs/; a test holds each against what this says.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scripts import dashboard
from scripts.records_page import records

DOCS = Path(__file__).parents[1] / "docs"
_MADE = "\nThis page is written by `make pages` from {}.\n"
_LEAVE = {"help", "install_completion", "show_completion"}


def commands() -> str:
    """Return `docs/commands.md`: each command with its arguments and options."""
    import typer  # noqa: PLC0415 - with the trees of both programs

    from changelog.cli import app as changelog_app  # noqa: PLC0415 - likewise
    from views.cli import app as rebuild_app  # noqa: PLC0415 - likewise
    from views.cli import schedule_app  # noqa: PLC0415 - likewise

    lines = [
        "# Commands\n",
        "Two programs: `changelog` for the log, `rebuild-view` for the views. Each option that is",
        "a setting too can stand in `changelog.toml` (`docs/configuration.md`). `--help` of a",
        "command says the same, and fits the terminal.",
        _MADE.format("the programs' own help"),
    ]
    apps = {
        "changelog": changelog_app,
        "rebuild-view": rebuild_app,
        "rebuild-view schedule": schedule_app,
    }
    for name, app in apps.items():
        for path, command in _tree(typer.main.get_command(app), name):
            lines += _command(path, command)
    return "\n".join(lines)


def _tree(command: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - click's
    yield path, command
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        for name in command.list_commands(context):
            yield from _tree(command.get_command(context, name), f"{path} {name}")


def _command(path: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - click's
    yield f"## {path}\n"
    yield _prose(command.help or "")
    shown: dict[str, list[Any]] = {"": []}
    for each in command.params:
        if each.name not in _LEAVE:
            shown.setdefault(getattr(each, "rich_help_panel", None) or "", []).append(each)
    for subject, some in shown.items():
        if some:
            yield f"\n**{subject}**\n" if subject else ""
        for each in some:
            yield _parameter(each)
    yield f"\n{_prose(command.epilog)}\n" if command.epilog else ""


def _parameter(each: Any) -> str:  # noqa: ANN401 - click's
    if each.param_type_name == "argument":
        names = f"`{each.metavar or (each.name or '').upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in [*each.opts, *each.secondary_opts])
    default = each.default
    told = default not in (None, False, True, (), []) and not callable(default)
    value = getattr(default, "value", default)
    ending = f" Default `{value}`." if told else ""
    return f"- {names}: {_prose(each.help or '')}{ending}"


def _prose(text: str) -> str:
    """Return a help text as Markdown reads it; what it has in backticks stays."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return "\n\n".join(re.sub(r"(?<!`)<(\w+)>", r"\\<\1>", each) for each in paragraphs)


_CODES: dict[int, tuple[str, str]] = {
    0: ("done", "nothing"),
    1: ("failed; what served before serves", "read the line, then try again"),
    2: ("usage or settings; nothing was begun", "change what the line names; trying again is vain"),
    3: (
        "refuted: a view differs from what the log says",
        "look at the rows it shows; do not retry",
    ),
    4: ("the log can no longer give an exact answer", "`changelog topics` says why and what to do"),
    5: ("another run of the view goes on", "wait for it: `--wait SECONDS`"),
    130: ("ended by Ctrl-C", "nothing"),
}


def exit_codes() -> str:
    """Return `docs/exit-codes.md`: what each code means, and which errors end with it."""
    by_code: dict[int, dict[str, str]] = {}
    for name, code, said in _errors():
        by_code.setdefault(code, {})[name] = said
    unknown = by_code.keys() - _CODES.keys()
    if unknown:
        raise SystemExit(f"exit codes that the page says nothing of: {unknown}")
    lines = [
        "# Exit codes\n",
        "The same for every command, so that cron, systemd and schedulers can go by them. Of",
        "several views that are rebuilt apart it is the worst: 3, 4, 1, 2, 5. An error is one line",
        "on standard error; with `--json` also an object with `error` and `exit_code`.",
        "`changelog verify --every`, once stopped, ends with the code of its last round.",
        _MADE.format("the errors of the code"),
        "| code | means | what to do |\n|---|---|---|",
        *(f"| **{code}** | {means} | {act} |" for code, (means, act) in _CODES.items()),
        "",
    ]
    for code in sorted(by_code):
        lines += [f"## Errors that end with {code}\n", "| error | says |\n|---|---|"]
        lines += [f"| `{name}` | {said} |" for name, said in sorted(by_code[code].items())]
        lines.append("")
    return "\n".join(lines)


def _errors() -> Iterator[tuple[str, int, str]]:
    """Find name, code and first sentence of each error in the source of the three packages.

    Read, not imported: importing all modules takes Spark and half a minute.
    """
    found: dict[str, ast.ClassDef] = {}
    for package in ("changelog", "replay", "views"):
        for path in sorted((DOCS.parent / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found[node.name] = node
    for name, node in found.items():
        code = _code_of(name, found)
        if code is not None and not name.startswith("_"):
            said = (ast.get_docstring(node) or "").partition("\n\n")[0]
            yield name, code, " ".join(said.split())


def _code_of(name: str, classes: Mapping[str, ast.ClassDef]) -> int | None:
    """Return the exit code of an error, its own or inherited; None for other classes."""
    node = classes.get(name)
    if node is None:
        return None
    for line in node.body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "exit_code":
            return int(ast.literal_eval(line.value))
    bases = (_code_of(ast.unparse(base), classes) for base in node.bases)
    return next((code for code in bases if code is not None), None)


def metrics() -> str:
    """Return `docs/metrics.md`: each metric of captures, runs and rounds, as it is exported."""
    lines = [
        "# Metrics\n",
        "For Prometheus. `docs/operating.md` and `docs/scheduling.md` say what to alert on.",
        _MADE.format("what is exported"),
    ]
    for title, exported in (
        ("A capture (`changelog capture --metrics-port`)", _of_capture()),
        ("A run of rebuilds (`[runs] metrics_file`, `push_gateway`)", _of_a_run()),
        ("Repeated comparisons (`changelog verify --every --metrics-port`)", _of_rounds()),
    ):
        lines += [f"## {title}\n", "| metric | kind | labels | says |\n|---|---|---|---|"]
        for family in sorted(exported, key=lambda each: each.name):
            labels = sorted({name for sample in family.samples for name in sample.labels})
            ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
            name = family.name if family.name.endswith(ending) else f"{family.name}{ending}"
            named = ", ".join(f"`{label}`" for label in labels)
            lines.append(f"| `{name}` | {family.type} | {named} | {family.documentation} |")
        lines.append("")
    return "\n".join(lines)


def _of_capture() -> list[Any]:
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - for this page alone

    from changelog.capture.inspect.metrics import CaptureMetrics  # noqa: PLC0415 - likewise
    from changelog.capture.state.report import CaptureReport, SnapshotProgress  # noqa: PLC0415
    from changelog.contract.base.headers import Op  # noqa: PLC0415
    from changelog.contract.base.lsn import Lsn  # noqa: PLC0415
    from changelog.contract.rows.relation import TableName  # noqa: PLC0415
    from changelog.source.connect.retention import SlotStatus, SourceState  # noqa: PLC0415

    slot = SlotStatus(
        name="shop",
        active=True, active_pid=1, wal_status="reserved", invalidation=None, inactive_since=None,
        restart_lsn=Lsn(1), confirmed_flush_lsn=Lsn(1), lag_bytes=1, retained_bytes=1, safe_bytes=1,
    )  # fmt: skip
    source = SourceState(
        now_us=1, wal_lsn=Lsn(1), slot=slot, keep_limit_bytes=None, disk_free_bytes=None,
        wal_bytes=0, wal_seconds=None,
    )  # fmt: skip
    table, report = TableName("public", "orders"), CaptureReport()
    report.frontier_written(Lsn(1), 1)
    report.snapshot = SnapshotProgress(estimate=1)
    report.rows[table, Op.CREATE] = report.bytes[table, Op.CREATE] = 1
    report.errors["broker"] = 1
    report.excluded[table] = "a reason"
    registry = CollectorRegistry()
    registry.register(CaptureMetrics(report, lambda: source, slot="shop"))
    return list(registry.collect())


def _of_rounds() -> list[Any]:
    from changelog.compare.options import CopyOptions  # noqa: PLC0415 - for this page alone
    from changelog.compare.rounds import Rounds, Since, Standing  # noqa: PLC0415 - likewise
    from changelog.compare.side import Moment  # noqa: PLC0415
    from changelog.contract.base.lsn import Lsn  # noqa: PLC0415

    moment = Moment(Lsn(1), datetime.now(UTC))
    rounds = Rounds(CopyOptions(every="1h"), Path(), as_json=False)
    report: Any = SimpleNamespace(mismatches=1, source_rows=1, target_rows=1, seconds=1.0)
    since: dict[tuple[str | None, ...], Since] = {("1",): Since(moment, moment)}
    rounds.standings["a"] = Standing(report, since, moment)
    return list(rounds.collect())


def _of_a_run() -> list[Any]:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    from views.generations.history import PUBLISHED, HistoryRow  # noqa: PLC0415
    from views.runs.tell import RunMetrics  # noqa: PLC0415

    now = datetime.now(UTC)
    view = {
        "view": "orders_copy", "seconds": {"total": 1.0}, "rows": 1, "records_read": 1,
        "verified": True, "mismatches": 0, "exact_until": now.isoformat(), "exit_code": 0,
    }  # fmt: skip
    row = HistoryRow(view="orders_copy", generation=1, state=PUBLISHED, at=now, ts=now)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.prom"
        run = {"seconds": 1.0, "exit_code": 0, "views": [view]}
        RunMetrics(run, {"orders_copy": row}).write(str(path))
        return list(text_string_to_metric_families(path.read_text("utf-8")))


def examples() -> str:
    """Return `docs/examples.md`: the files of `examples/`, for who has the site alone."""
    lines = [
        "# Files for schedulers and services\n",
        "Each is tried in a test; `docs/scheduling.md` and `docs/install.md` say what it is for.",
        _MADE.format("the files of `examples/`"),
    ]
    for folder, title in _EXAMPLES.items():
        lines.append(f"## {title}\n")
        for path in sorted((DOCS.parent / "examples" / folder).rglob("*")):
            name = path.relative_to(DOCS.parent)
            if path.suffix == ".json":
                lines.append(f"`{name}`: in the repository\n")
            elif path.is_file():
                text = path.read_text("utf-8").rstrip()
                kind = _KINDS.get(path.suffix, folder if folder == "cron" else "text")
                lines += [f"`{name}`\n", f"```{kind}\n{text}\n```\n"]
    return "\n".join(lines)


_KINDS = {".py": "python", ".yaml": "yaml", ".service": "ini", ".timer": "ini"}
_EXAMPLES = {
    "cron": "cron",
    "systemd": "systemd",
    "airflow": "Airflow",
    "dagster": "Dagster",
    "dbt": "dbt",
    "container": "A container image",
    "monitoring": "Prometheus and Grafana",
}


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "examples": examples,
    "exit-codes": exit_codes,
    "metrics": metrics,
    "records": records,
}
"""What writes each page, by its name below docs/."""


if __name__ == "__main__":
    dashboard.PLACE.write_text(dashboard.written(), encoding="utf-8")
    for name, page in PAGES.items():
        (DOCS / f"{name}.md").write_text(page().rstrip() + "\n", encoding="utf-8")
