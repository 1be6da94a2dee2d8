"""The command `changelog push`, which joins by the entry-point group `changelog.commands`."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.examples import with_examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.options import DebugOption, JsonOption, ProjectOption
from changelog.runtime.setting import Given
from changelog.sections import Kafka, Registry

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@with_examples(
    "`changelog push orders_by_customer --to https://hooks.example.com/orders --since start` sends "
    "all rows, then every change, until it is stopped",
    "`changelog push orders_by_customer --to https://hooks.example.com/orders` goes on from there",
    more="**Exit codes** 0 stopped, or with --once nothing is left · 1 the receiver takes no "
    "events, or a server refuses · 2 no such view or place, or the settings are wrong · 5 another "
    "process pushes under this name",
)
@takes(Chosen(Kafka), Chosen(Registry))
def push(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="A view with a topic.")],
    to: Annotated[str, typer.Option("--to", help="The address that gets a POST for each change.")],
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            help="Where a first run begins: start (all rows), now, an LSN, or a frontier's mark; "
            "later ones go on.",
        ),
    ] = "",
    name: Annotated[
        str, typer.Option("--name", help="Keep the place under this name, one for each receiver.")
    ] = "default",
    signed_by: Annotated[
        str, typer.Option("--secret", help="The environment's variable with the secret, whsec_….")
    ] = "CHANGELOG_WEBHOOK_SECRET",
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Sign nothing.")] = False,
    lanes: Annotated[
        int, typer.Option("--lanes", min=1, max=256, help="So many keys at a time.")
    ] = 8,
    once: Annotated[
        bool, typer.Option("--once", help="End once nothing is left; for cron and tests.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Push the changes of a view to a webhook: CloudEvents, signed, in order for each key.

    Each change is delivered once at least, and under the same id when it is sent again. An event
    that the receiver refuses for good goes to the topic TOPIC.refused.
    """
    check_extra("spark", "changelog push")
    from changelog.config import BROKERS, load_project
    from changelog.runtime.edge import print_json, stop_on_signals, tell
    from views.changes.feed import opened_feed
    from views.push.events import Signer
    from views.push.marks import PushMarks
    from views.push.push import DeadTopic, Pusher
    from views.push.receiver import Receiver

    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"--name: {name!r} is no name", hint="small letters, digits, _ and -"
        )
    signer = Signer() if unsigned else Signer.of(os.environ.get(signed_by, ""), signed_by)
    settings = load_project(project, overrides=overrides, needs=[BROKERS], one_source=False)
    stop = stop_on_signals()
    with closing(Receiver(to, signer, stop)) as receiver:
        with closing(opened_feed(settings, view)) as feed:
            marks = PushMarks(feed.server, feed.topic, name)
            place = since or marks.read()
            if place is None:
                raise ConfigurationError(
                    f'nothing was pushed as "{name}" yet', hint="--since start, or --since now"
                )
            feed.begin(None if place == "now" else place)
            marks.claim(None if place == "now" else place)
            dead = DeadTopic(feed.server, feed.topic)
            pusher = Pusher(feed, receiver, marks, dead, topic=feed.topic, lanes=lanes, stop=stop)
            pusher.run(once=once)
        report = pusher.report
        if as_json:
            print_json(report.to_json())
        else:
            tell(
                f"{report.delivered:,} events are delivered to {receiver.shown}, "
                f"{report.refused:,} refused; {view} is there up to {report.lsn or place}"
            )
