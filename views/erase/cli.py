"""The command `changelog erase`.

Mounted through the entry-point group `changelog.commands`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from changelog.config import BROKERS, REGISTRY, SOURCE, load_project
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.relation import TableName
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import bar_console, print_json, stop_on_signals
from changelog.runtime.examples import with_examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.options import DebugOption, JsonOption, ProjectOption
from changelog.runtime.setting import Given
from changelog.sections import SLOT, CaptureSettings, Kafka, Postgres, Registry
from replay.base.sections import Kept

if TYPE_CHECKING:
    from views.erase.erase import Erased, Erasure


@with_examples(
    "`changelog erase --table customers --key id=42` says where it would look and what it would do",
    "`changelog erase --table customers --key id=42 --yes --certificate erased.json` does it",
    "`changelog erase --table customers --keys keys.jsonl --yes --wait 700000` waits until the log "
    "has let go of the last tombstone",
    more="**Exit codes** 0 nothing is left, the certificate is written · 1 something is left for "
    "now, the line says until when · 2 a row is still in the source, or a view is not covered; "
    "nothing was begun · 5 a rebuild or a follower is at work",
)
@takes(
    Chosen(Postgres),
    Chosen(Kafka),
    Chosen(Registry),
    Chosen(CaptureSettings, *SLOT),
    Chosen(Kept, "archive"),
)
def erase(
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    table: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="The table: name or schema.name.")
    ],
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="COLUMN=VALUE",
            help="The primary key of the row, as PostgreSQL writes it; once for each column.",
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            help='Keys of many rows: a line of JSON for each, such as {"id": 42}.',
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Erase; without it the plan is printed and nothing done.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", "--dry-run", help="Only say what would be done.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            help="How long to wait for the log's compaction; a later run goes on.",
        ),
    ] = 300.0,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate",
            metavar="FILE",
            help="Write the certificate to this file (.json), in place of one in the warehouse.",
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Erase rows from everything that is kept, once they are deleted in the source.

    The log, the archive, kept states, all generations of views; then a certificate says what was
    looked at, and what is out of reach. No reader is told less than was promised: values leave the
    log once min_compaction_lag_ms is over, tombstones once delete_retention_ms is, and a run that
    comes before that says when to come back. Views in sinks that are not covered are refused before
    anything begins (docs/erase.md).
    """
    check_extra("spark", "changelog erase")
    check_extra("verify", "changelog erase")
    from views.base.progress import Stages
    from views.erase.erase import Erasure
    from views.erase.keys import parse_keys

    name = TableName.parse(table)
    if name is None:
        raise ConfigurationError(f"{table!r} does not name a table", hint="name or schema.name")
    rows = parse_keys(key or (), keys)
    settings = load_project(project, overrides=overrides, needs=[SOURCE, BROKERS, REGISTRY])
    stages = Stages(bar_console(as_json=as_json))
    with stages.shown():
        erasure = Erasure(settings, name, rows, stages)
        if yes and not plan:
            erased = erasure.run(wait_s=wait, target=certificate, stop=stop_on_signals())
            _tell_erased(erased, as_json=as_json)
            return
    _tell_plan(erasure, as_json=as_json)


def _tell_plan(erasure: Erasure, *, as_json: bool) -> None:
    lines = erasure.plan()
    if as_json:
        print_json({"plan": [{"place": place, "text": text} for place, text in lines]})
        return
    for place, text in lines:
        print(f"{place}: {text}")
    print("nothing was done; --yes does it")


def _tell_erased(erased: Erased, *, as_json: bool) -> None:
    facts = erased.facts
    if as_json:
        print_json(
            {
                "certificate": str(erased.certificate),
                "secret": erased.secret,
                "keys": len(facts.keys),
                "places": [
                    {"kind": place.kind, "name": place.name, "result": place.result}
                    for place in facts.places
                ],
                "out_of_reach": dict(facts.out_of_reach),
            }
        )
        return
    for place in facts.places:
        print(f"{place.kind} {place.name}: {place.result}")
    print(f"out of reach: {', '.join(facts.out_of_reach)}")
    print(f"certificate: {erased.certificate}")
    print(f"secret of the keys in it, told this once: {erased.secret}")
