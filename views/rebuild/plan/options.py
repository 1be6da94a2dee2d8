"""Options of one run of `rebuild-view`, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

from changelog.runtime.options import TOLD, VersionOption
from replay.cut.asof import AsOf, parse_as_of
from views.base.config import RowsSource, VerifyMode


def views_here(incomplete: str) -> list[str]:
    """Return the views of this folder whose names begin with a text, for completion in a shell."""
    names = {path.stem for path in Path("views").glob("*") if path.suffix in {".sql", ".py"}}
    return sorted(name for name in names if name.startswith(incomplete))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of a run; each field is an option of the command line."""

    subjects: ClassVar[Mapping[str, str]] = {
        "source": "How rows are made and proved",
        "stage": "Generations",
        "plan": "Looking, without a build",
        "as_json": TOLD,
    }
    views: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VIEW…",
            help="Views of the project; behind one of them, with --publish or --diff, the number "
            "of a generation.",
            autocompletion=views_here,
        ),
    ] = None
    all_views: Annotated[bool, typer.Option("--all", help="Every view of the project.")] = False
    project: Annotated[
        Path, typer.Option("--project", help="Folder with changelog.toml and views/.")
    ] = Path()
    source: Annotated[
        Literal["start", "checkpoint", "archive"] | None,
        typer.Option(
            "--from",
            help="Read the log from its start (the default); what came after the checkpoints "
            "of the warehouse, which are made if there are none; or what `changelog archive` has "
            "copied, without brokers and registry.",
        ),
    ] = None
    as_of: Annotated[
        str,
        typer.Option(
            "--as-of",
            metavar="LSN|TIME",
            help="The state at an older frontier, the newest one at or before an LSN or a time "
            "(ISO 8601, UTC without a zone); refused with the nearest that can be given.",
        ),
    ] = "latest"
    refresh: Annotated[
        bool,
        typer.Option(
            "--refresh",
            help="Read what came after what serves, and compute anew only the rows that it "
            "touches; where that cannot be told, or deletes may have been missed, all of them.",
        ),
    ] = False
    following: Annotated[
        bool,
        typer.Option("--follow", help="Refresh again and again until a signal ends it."),
    ] = False
    verify: Annotated[
        VerifyMode | None,
        typer.Option(
            "--verify",
            help="How much is proved before it is published: all rows against the log from its "
            "start, or from what was proved before and what changed since; a part of the keys; "
            "nothing. The default is full, of --refresh and --follow changed.",
        ),
    ] = None
    certificate: Annotated[
        bool,
        typer.Option(
            "--certificate",
            help="Write a certificate of each generation that is published: a document with a "
            "digest of its rows, which others can check (docs/certificate.md).",
        ),
    ] = False
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Publish all of the views or none. Without it each succeeds or fails by itself. "
            "With --follow, let each round wait for all sinks.",
        ),
    ] = False
    max_age: Annotated[
        float | None,
        typer.Option(
            "--max-age",
            min=0,
            metavar="SECONDS",
            help="Leave out views that serve a generation that was published less than so long "
            "ago, by the file that they have now and as well proved: what a run had done that was "
            "cut off.",
        ),
    ] = None
    stage: Annotated[
        bool,
        typer.Option(
            "--stage",
            help="Build and verify, but let no reader see it: say where it can be tried. It waits "
            "until --publish or --abort, beside other runs; a newer one replaces it.",
        ),
    ] = False
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            help="Let readers see what is staged, in every sink of all the views or in none; a "
            "number behind the view says which generation is meant. One that was not verified "
            "needs --verify none.",
        ),
    ] = False
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help="Compare what is staged, or the generation of a number behind the view, with "
            "what serves: rows and columns, and some rows that differ.",
        ),
    ] = False
    abort: Annotated[
        bool, typer.Option("--abort", help="Remove what is staged from every sink.")
    ] = False
    rollback: Annotated[
        bool,
        typer.Option(
            "--rollback",
            help="Serve the previous generation again, or the one of a number behind the view. "
            "Behind another rollback it wants the number.",
        ),
    ] = False
    drop: Annotated[
        bool,
        typer.Option(
            "--drop",
            help="Remove the views from every sink, all generations; also views whose files are "
            "gone. Asks first.",
        ),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", help="Let --drop remove without asking.")] = False
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Say what would be done, and whether the log can give it."),
    ] = False
    long: Annotated[
        bool,
        typer.Option("--long", help="With --plan all that is known of each view, topic by topic."),
    ] = False
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="KEY",
            help="Say from which records the row of a key comes, and which those superseded. Of a "
            "key of several columns give a JSON array.",
        ),
    ] = None
    history: Annotated[
        bool, typer.Option("--history", help="Show what became of each generation.")
    ] = False
    list_views: Annotated[bool, typer.Option("--list", help="Show the views of the project.")] = (
        False
    )
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per view on standard output.")
    ] = False
    debug: Annotated[bool, typer.Option("--debug", help="Debug log, and stack traces.")] = False
    version: VersionOption = False

    @property
    def names(self) -> list[str]:
        """Return the views that the arguments name; a number is never a view."""
        return [word for word in self.views or [] if not word.isdecimal()]

    @property
    def numbers(self) -> list[int]:
        """Return the generations that the arguments name."""
        return [int(word) for word in self.views or [] if word.isdecimal()]

    @property
    def generation(self) -> int | None:
        """Return the generation to act on, None for the staged one."""
        return next(iter(self.numbers), None)

    @property
    def builds_nothing(self) -> bool:
        """Tell whether only existing generations are published, read or removed."""
        return self.publish or self.diff or self.abort or self.drop

    @property
    def moment(self) -> AsOf | None:
        """Return the moment of an older state, None for the newest.

        Raises ConfigurationError: it is neither an LSN nor a time.
        """
        return parse_as_of(self.as_of)

    @property
    def reads_on(self) -> bool:
        """Tell whether the serving generation is refreshed."""
        return self.refresh or self.following

    @property
    def proved(self) -> VerifyMode:
        """Return the kind of proof."""
        if self.verify is not None:
            return self.verify
        return VerifyMode.CHANGED if self.reads_on else VerifyMode.FULL

    @property
    def made_of(self) -> RowsSource | None:
        """Return the source of the rows, or None if it is left open."""
        if self.reads_on:
            return RowsSource.REFRESH
        if self.explain is not None:
            return RowsSource.START  # it reads the log, which may not give what a checkpoint does
        return RowsSource(self.source) if self.source is not None else None

    def to_follow(self, names: Sequence[str]) -> list[str]:
        """Return the arguments of a command that follows some of the views as this one does."""
        flags = {"--json": self.as_json, "--debug": self.debug}
        return [
            "--follow",
            *(flag for flag, is_set in flags.items() if is_set),
            *("--verify", self.proved.value, "--project", str(self.project), "--", *names),
        ]

    def check(self) -> None:
        """Check that the options go together.

        Raises BadParameter: some do not; ConfigurationError: `--as-of` is not a moment.
        """
        reads_otherwise = self.source is not None or self.moment is not None
        explains = self.explain is not None
        looks = {
            "--plan": self.plan,
            "--explain": explains,
            "--rollback": self.rollback,
            "--publish": self.publish,
            "--diff": self.diff,
            "--abort": self.abort,
            "--drop": self.drop,
            "--history": self.history,
            "--list": self.list_views,
        }
        *first, last = looks
        listed = f"{', '.join(first)} and {last}"
        rules = (
            (sum(looks.values()) > 1, f"choose one of {listed}"),
            (self.following and any(looks.values()), f"--follow goes without {listed}"),
            (self.stage and any(looks.values()), f"--stage builds: it goes without {listed}"),
            (
                self.stage and self.reads_on,
                "--stage builds all rows of a view: it goes without --refresh and --follow",
            ),
            (
                self.certificate and (any(looks.values()) or self.following),
                f"--certificate goes without {listed} and --follow",
            ),
            (
                self.certificate and self.source == "archive",
                "--certificate says what the log holds: it goes without --from archive",
            ),
            (
                self.certificate and self.verify is VerifyMode.NONE,
                "--certificate needs a proof: it goes without --verify none",
            ),
            *self._later_rules(reads_otherwise=reads_otherwise or self.reads_on),
            (
                self.reads_on and reads_otherwise,
                "--refresh and --follow go without --from and --as-of",
            ),
            (
                explains and (self.reads_on or self.source is not None),
                "--explain reads the log from its start: it goes without --refresh and --from",
            ),
            (explains and len(self.names) != 1, "--explain takes one view"),
            (
                self.max_age is not None and (any(looks.values()) or self.following or self.stage),
                f"--max-age goes without {listed}, --follow and --stage",
            ),
            (
                self.max_age is not None and self.moment is not None,
                "--max-age goes without --as-of",
            ),
            (bool(self.names) and self.all_views, "name views or give --all, not both"),
            (
                not (self.names or self.all_views or self.history or self.list_views),
                "name a view or give --all (--list shows them)",
            ),
        )
        for is_broken, problem in rules:
            if is_broken:
                raise typer.BadParameter(problem)

    def _later_rules(self, *, reads_otherwise: bool) -> tuple[tuple[bool, str], ...]:
        """Return the rules for actions on existing generations."""
        unproved = self.verify in {None, VerifyMode.NONE}
        return (
            (
                self.builds_nothing and reads_otherwise,
                "what builds nothing goes without --as-of, --from, --refresh and --follow",
            ),
            (
                self.publish and not unproved,
                "--publish verifies nothing: it takes --verify none, for what is staged unproved",
            ),
            (
                (self.diff or self.abort or self.drop) and self.verify is not None,
                "--diff, --abort and --drop go without --verify",
            ),
            (
                bool(self.numbers) and not (self.publish or self.diff or self.rollback),
                "a number names a generation, which only --publish, --rollback and --diff take",
            ),
            (
                len(self.numbers) > 1 or (bool(self.numbers) and len(self.names) != 1),
                "name one view and one generation",
            ),
            (self.drop and self.all_views, "--drop takes the names of views, not --all"),
            (self.yes and not self.drop, "--yes goes with --drop"),
            (self.long and not self.plan, "--long goes with --plan"),
        )
