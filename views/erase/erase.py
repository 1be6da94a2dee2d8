"""An erasure from its plan to its certificate; a run goes on with what the one before has left.

Views first, then the log, the archive, histories, and what is kept: so what is served is without
the rows at once, while the log keeps its promise to readers for as long as it was given. A run that
finds the log not clean yet ends with an error that says when to come back, and the next one skips
what is done. Only one that finds nothing anywhere writes the certificate.
"""

from __future__ import annotations

import logging
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from changelog.attestation.envelope import Signer
from changelog.config import Project
from changelog.contract.base.errors import ChangelogError, ConfigurationError, LogError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.form import PLAIN
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from replay.archive.copy import CopySource, copy_news
from replay.archive.erase import erase as erase_archive
from replay.archive.erase import remaining
from replay.archive.store import Archive
from replay.base.sections import archive_of, warehouse_of
from replay.broker.topics import read_frontier
from replay.decode.schemas import SchemaReader, TopicSchemas
from replay.verdict.limits import moment_text
from views.api.runs import rebuilt
from views.base.config import RebuildSettings, RowsSource
from views.base.progress import Stages
from views.certificates.certify import signer_of
from views.erase import certificate
from views.erase.certificate import OUT_OF_REACH, Facts, Place
from views.erase.keys import Key, encoded
from views.erase.notes import FOLDER, Note, note_of, pending
from views.erase.served import (
    ReadingViews,
    reading_views,
    refuse,
    remaining_of,
    remove_kept_states,
    retire_others,
    rewrite_statistics,
)
from views.erase.source import canonical_keys, is_captured_now, opened_source, require_gone
from views.erase.topic import Cleaning, TopicLook, alive, look, never_cleaned, put_back
from views.generations.history import GenerationHistory
from views.generations.lock import advancing, erasing, locked
from views.generations.place import LockPlace, place_for
from views.project.spec import ViewSpec

log = logging.getLogger("changelog.views")
_CAUGHT_UP_S = 90.0
_LOOK_S = 0.5


class NotErasedYetError(ChangelogError):
    """Something of the keys is still there, and goes later; the message says where and when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """A finished erasure."""

    certificate: Path
    secret: str  # under which the certificate has the keys
    facts: Facts


class Erasure:
    """The erasure of some keys of one table; looks, and then works."""

    def __init__(
        self, project: Project, table: TableName, keys: Sequence[Key], stages: Stages
    ) -> None:
        """Look up what there is; changes nothing.

        Raises:
            ConfigurationError: the table or a key cannot be erased, or a view is not covered.
            ChangelogError: the source, the brokers, the registry or a sink do not answer.
        """
        self._project, self._stages = project, stages
        self._settings = RebuildSettings(project=project)
        with stages.stage("look", "the log, the source and the views"):
            self._record = self._frontier()
            schemas = self._schemas(table)
            key = schemas.logged(schemas.reader_id).key
            with opened_source(project.postgres) as source:
                texts = canonical_keys(source, table, key, keys)
            self.keys = encoded(texts, table, schemas)
            self._key_id = schemas.key_id or 0
            self.views: ReadingViews = reading_views(project, table, schemas.topic)
            self._archive = Archive(archive_of(project))
            self.has_archive = bool(self._archive.segments())
        self._places: list[Place] = []

    def _frontier(self) -> FrontierRecord:
        project = self._project
        return read_frontier(project.kafka, frontier_topic(project.topic_prefix), project.slot)

    def _schemas(self, table: TableName) -> TopicSchemas:
        """Return the schemas of the table's topic, which has to be one whose keys can be read."""
        frontier = self._record.frontier
        topic = frontier.topic_of(table)
        if topic is None:
            raise ConfigurationError(
                f"table {table.said} is not captured",
                hint="`changelog status` lists those that are",
            )
        scope = frontier.scope_of(topic)
        if not scope.keyed or scope.form != PLAIN:
            kind = str(scope.form) if scope.keyed else "records without keys"
            raise ConfigurationError(
                f'topic "{topic}" has {kind}, of which no key can be erased yet'
            )
        with closing(SchemaReader(self._project.registry, self._project.kafka)) as reader:
            schemas = reader.of_table(topic, table, scope)
        for column in schemas.logged(schemas.reader_id).key:
            if scope.mask_of(column) is not None:
                raise ConfigurationError(
                    f'topic "{topic}" has column "{column}" of the key masked: no key can be erased'
                )
        return schemas

    def plan(self) -> list[tuple[str, str]]:
        """Return the places that will be looked at and what is done there, and all out of reach."""
        keys, number = self.keys, len(self.keys.texts)
        lines = [
            ("source", f"{keys.table}: {number} keys must have no row"),
            ("topic", f"{keys.topic}: their records leave by compaction, tombstones last"),
        ]
        lines += [
            ("view", f"{view.name} in {', '.join(view.generations)}: built anew; others go")
            for view in self.views.views
        ]
        if self.has_archive:
            lines.append(("archive", f"{self._archive.root}: files are written anew without them"))
        lines.append(("kept", f"states of {keys.topic} in {warehouse_of(self._project)}: removed"))
        lines += [("refused", refusal) for refusal in self.views.refusals]
        return lines + [("out of reach", f"{name}: {text}") for name, text in OUT_OF_REACH.items()]

    def run(
        self,
        *,
        wait_s: float,
        target: Path | None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Erased:
        """Erase the keys, and write the certificate to a file, by default in the warehouse.

        `wait_s`: how long the log's cleaning is waited for.

        Raises:
            NotErasedYetError: the log keeps records for now; says until when.
            ConfigurationError: a row is in the source, or a view is not covered; nothing was begun.
            LockedError: a rebuild, a follower or another erasure is at work.
            ChangelogError: something failed; run it again.
        """
        refuse(self.views)
        signer = signer_of(self._settings)
        if target is not None:
            certificate.check_file(target)
        place = place_for(self._settings)
        with erasing(place):
            for note in pending(warehouse_of(self._project)):
                put_back(self._project.kafka, note)
            note = note_of(warehouse_of(self._project), self.keys)
            with locked(place, self._names()):
                pass  # what works on views now is told before anything is done
            self._captured()
            seen = self._look()
            self._require_dead(seen)
            note.met(max((record.at_ms for record in seen.remaining), default=None))
            note.save()
            specs = [view.spec for view in self.views.views]
            self._free([spec for spec in specs if not spec.history], note, place)
            self._places = []
            with self._stages.stage("log", f"records of {self.keys.topic}, by compaction"):
                cleaning = Cleaning(self._project.kafka, note, may_close=self._may_close, stop=stop)
                cleaning.run(seen.remaining, wait_s, self._stages.steps())
            lsn = self._captured()  # a row may have come back meanwhile
            clean = self._look()
            self._clear_archive(is_last=not clean.remaining)
            if not clean.remaining:
                self._free([spec for spec in specs if spec.history], note, place)
            self._clear_kept(note, place)
            if clean.remaining:
                raise self._not_yet(cleaning, clean)
            return self._certified(lsn, clean, note, target or self._default_target(), signer)

    def _names(self) -> list[str]:
        """Return all views of the project's history: none of them may be worked on."""
        return sorted({row.view for row in GenerationHistory(warehouse_of(self._project)).rows()})

    def _captured(self) -> Lsn:
        """Require that the rows are gone at the source, and that the log is as far as that.

        Returns an LSN behind the deletes.
        """
        project, keys = self._project, self.keys
        with self._stages.stage("source", "the rows are gone there, and the log knows it"):
            with opened_source(project.postgres) as source:
                lsn = require_gone(source, keys.table, keys.columns, keys.texts)
            if self._frontier().frontier.lsn < lsn and self._may_close():
                self._capture(lsn)
            deadline = time.monotonic() + _CAUGHT_UP_S
            while (at := self._frontier().frontier.lsn) < lsn:
                if time.monotonic() > deadline:
                    raise ConfigurationError(
                        f"the log is at LSN {at}, the deletes may be up to {lsn}",
                        hint=f"let capture catch up: `changelog capture --until {lsn}`",
                    )
                time.sleep(_LOOK_S)
        return lsn

    def _capture(self, lsn: Lsn) -> None:
        """Bring the log up to an LSN, since nobody else does."""
        source = self._project.capture.source
        words = [sys.executable, "-m", "changelog", "capture", "--until", str(lsn)]
        words += ["--project", str(self._project.root), *(["--source", source] if source else [])]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        if ran.returncode:
            line = (ran.stderr.strip().splitlines() or ["no answer"])[-1]
            raise LogError(f"capture could not bring the log up to LSN {lsn}: {line}")

    def _may_close(self) -> bool:
        """Tell whether no capture runs: it takes foreign records for a rival's."""
        with opened_source(self._project.postgres) as source:
            return not is_captured_now(source, [*self._project.capture.slots])

    def _look(self) -> TopicLook:
        with self._stages.stage("read", f"{self.keys.topic} from its start"):
            return look(
                self._project.kafka,
                self.keys.topic,
                self.keys.bodies,
                self._key_id,
                self._stages.steps(),
            )

    def _require_dead(self, seen: TopicLook) -> None:
        """Require that by the log none of the keys has a row.

        Raises LogError: one has, and the source has not.
        """
        if rows := alive(seen.remaining):
            raise LogError(
                f'topic "{self.keys.topic}" has a row of {len(rows)} of the keys, the source has '
                f"none: a delete is missing (partition {rows[0].partition}, offset "
                f"{rows[0].offset})",
                hint="`changelog verify` compares the two; `changelog resnapshot` mends the log",
            )
        if rows := never_cleaned(seen.remaining):
            raise LogError(
                f'topic "{self.keys.topic}" got more partitions: the delete of {len(rows)} records '
                f"is in another one, so compaction never removes them (partition "
                f"{rows[0].partition}, offset {rows[0].offset})",
                hint="capture the table under another topic prefix, and remove this topic",
            )

    def _free(self, specs: Sequence[ViewSpec], note: Note, place: LockPlace) -> None:
        """Rebuild views whose generations may have the rows, and remove all other generations."""
        stale = [spec for spec in specs if not self._is_free(spec, note)]
        if stale:
            settings = replace(self._settings, source=RowsSource.START)
            runs = rebuilt(stale, settings)
            built = {run.view: run.generation for run in runs}
            with (
                self._stages.stage("retire", "generations from before"),
                locked(place, self._names()),
            ):
                for spec in stale:
                    number = retire_others(spec, self._project, self._stages.steps())
                    if number != built[spec.name]:
                        raise ChangelogError(
                            f'view "{spec.name}": generation {number} serves, which somebody else '
                            "has built meanwhile",
                            hint="end what follows or rebuilds it, and run this again",
                        )
                    note.views[spec.name] = number
            note.save()

    def _is_free(self, spec: ViewSpec, note: Note) -> bool:
        """Tell whether all generations of a view are from after one that this erasure has built."""
        least = note.views.get(spec.name)
        return least is not None and not remaining_of(spec, self._project, least)

    def _clear_archive(self, *, is_last: bool) -> None:
        """Rewrite the archive's files without the keys.

        `is_last`: whether the log is clean. Then what it has is archived first: a run that has read
        records from before, and has not ended, can no longer add them.
        """
        if not self.has_archive:
            return
        project, keys = self._project, self.keys
        with self._stages.stage("archive", "the archive's files without them"):
            if is_last:
                source = CopySource(
                    kafka=project.kafka,
                    registry=project.registry,
                    frontier_topic=frontier_topic(project.topic_prefix),
                    slot=project.slot,
                )
                for gap in copy_news(self._archive, source).gaps:
                    log.warning("%s", gap)
            done = erase_archive(
                self._archive,
                keys.topic,
                keys.bodies,
                key_schema=keys.schema,
                steps=self._stages.steps(),
            )
            self._archive.remove_unnamed(self._archive.segments())
            if count := remaining(self._archive, keys.topic, keys.bodies):
                raise NotErasedYetError(
                    f"the archive still has {count} records", hint="run it again"
                )
        self._places.append(
            Place(
                kind="archive",
                name=self._archive.root,
                how="every file of the topic was read again, and its digest compared",
                looked_at={"files": done.files, "written_anew": done.written},
                result=f"no record of the keys; {done.records} were removed in this run",
            )
        )

    def _clear_kept(self, note: Note, place: LockPlace) -> None:
        names = self._names()
        with (
            self._stages.stage("kept", "states that are kept in the warehouse"),
            locked(place, names),
            advancing(place),
        ):
            views = [view.name for view in self.views.views]
            folders = remove_kept_states(self._project, self.keys.topic, views, note.views)
        self._places.append(
            Place(
                kind="kept",
                name=warehouse_of(self._project),
                how="folders of the topic and of its views were removed and looked for again; the "
                "history was freed of the rows that proofs had noted",
                looked_at={"places": folders},
                result="nothing is kept",
            )
        )

    def _not_yet(self, cleaning: Cleaning, clean: TopicLook) -> NotErasedYetError:
        records = clean.remaining
        moment = moment_text(cleaning.not_before_ms(records))
        values = sum(not record.is_tombstone for record in records)
        hint = "run it again then"
        if values:
            first = moment_text(cleaning.not_before_ms(records, only_values=True))
            hint += (
                f", and once before, behind {first}: tombstones stay for their time from then on"
            )
        if not self._may_close():
            hint += "; a capture runs, so segments are closed by its own records alone"
        return NotErasedYetError(
            f'topic "{self.keys.topic}" still has {len(records)} records of the keys, {values} of '
            f"them with values: min.compaction.lag.ms is {cleaning.lag_ms}, delete.retention.ms "
            f"{cleaning.retention_ms}, so they are gone not before {moment}",
            hint=hint,
        )

    def _default_target(self) -> Path:
        warehouse = warehouse_of(self._project)
        if "://" in warehouse:
            raise ConfigurationError(
                "the warehouse is no folder here: name a file for the certificate",
                hint="--certificate FILE.json",
            )
        folder = Path(warehouse) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        return (
            folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}.json"
        )

    def _certified(
        self, lsn: Lsn, clean: TopicLook, note: Note, target: Path, signer: Signer | None
    ) -> Erased:
        """Look at all places once more, and write the certificate."""
        project, keys = self._project, self.keys
        places = [
            Place(
                kind="source",
                name=str(keys.table),
                how="the table was asked for each key",
                looked_at={"keys": len(keys.texts), "lsn": str(lsn)},
                result="no row",
            ),
            Place(
                kind="topic",
                name=keys.topic,
                how="every record from the first to the end was read, uncommitted ones too, and "
                "its key compared",
                looked_at={
                    "topic_id": clean.topic_id,
                    "partitions": [
                        list(pair) for pair in zip(clean.starts, clean.ends, strict=True)
                    ],
                    "records": clean.records,
                },
                result="no record of the keys, no tombstone",
            ),
        ]
        for view in self.views.views:
            least = note.views[view.name]
            if traces := remaining_of(view.spec, project, least):
                raise NotErasedYetError("; ".join(traces), hint="run it again")
            places.append(
                Place(
                    kind="view",
                    name=view.name,
                    how="its sinks were asked for their generations, and the files of its Delta "
                    "table listed",
                    looked_at={
                        "sinks": list(view.spec.sinks),
                        "since": least,
                        "postgres_statistics_rewritten": rewrite_statistics(view.spec, project),
                    },
                    result=f"all from before generation {least} are gone; it was built and proved "
                    "without the rows",
                )
            )
        secret = secrets.token_bytes(32)
        facts = Facts(
            table=str(keys.table),
            topic=keys.topic,
            topic_id=clean.topic_id,
            lsn=str(lsn),
            keys=keys.digests(secret),
            places=[*places, *self._places],
            out_of_reach=OUT_OF_REACH,
        )
        certificate.write(target, facts, signer)
        note.remove()
        return Erased(certificate=target, secret=secret.hex(), facts=facts)
