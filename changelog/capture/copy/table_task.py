"""One table's backfill: its chunks, and which of them are on the log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from changelog.capture.start.environment import Environment
from changelog.capture.state.rate import UNLIMITED, Rate
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.backfill import BackfillRecord, TableBackfill, ranges_of
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.scope import WHOLE, Scope
from changelog.contract.rows.relation import Relation, TableName
from changelog.source.snapshot.snapshot import DEFAULT_BLOCKS, Chunk, TablePlan, chunks_of


@dataclass(slots=True, kw_only=True)
class TableTask:
    """A table that is being copied, or waits for it.

    A table without a primary key is copied in one segment, or starts over: no key lets a later
    record replace an earlier one, so each row has to be written exactly once.
    """

    relation: Relation  # the table with the columns that are read
    topic: str  # where the rows are written
    reason: str  # why the table is copied
    scope: Scope  # the rows and columns to copy
    is_new: bool  # whether frontiers leave the topic out until the table is whole
    stale: bool  # whether the topic may hold rows that the copy makes dead
    topic_id: str  # Kafka's id of the topic
    # the first position that will be alive, or None before the first fence
    since: Position | None = None
    plan: TablePlan | None = None  # the files of the table, or None before the first fence
    blocks: int = DEFAULT_BLOCKS  # pages of a chunk
    done: set[int] = field(default_factory=set)  # numbers of the chunks that are on the log
    rows: int = 0  # how many rows the done chunks had
    # LSN of the rows copied last
    high: Lsn = Lsn(0)  # noqa: RUF009 - immutable
    alive_from: tuple[int, ...] = ()  # the topic's ends when `since` was taken
    # the topic's ends when progress was written last, if no frontier has them
    ends: tuple[int, ...] = ()
    # transactions from before this attempt that may have changed the table and may still be
    # invisible to a snapshot; None if not known yet
    writers: frozenset[int] | None = None
    is_whole: bool = False  # whether all rows are on the log, and only a frontier is missing
    # whether earlier frontiers had the table and later ones must not, see `TableBackfill`
    is_excluded: bool = False
    is_spoken_of: bool = False  # whether the last frontier still has a table that is excluded now
    # why the table is not copied until somebody requests it, or empty. With a fault, `high` is the
    # end of the WAL when the fault was found
    fault: str = ""

    @property
    def is_keyed(self) -> bool:
        """Tell whether the table has a primary key."""
        return bool(self.relation.key)

    def resume(self, progress: TableBackfill) -> None:
        """Take over the progress of an earlier attempt."""
        self.since, self.stale = progress.since, progress.stale
        self.plan = TablePlan(progress.stores, progress.columns)
        self.blocks = progress.blocks
        self.done = {number for start, end in progress.done for number in range(start, end)}
        self.rows, self.high = progress.rows, progress.high
        self.alive_from, self.ends = progress.alive_from, progress.ends

    def begin(
        self, plan: TablePlan, since: Position, alive_from: tuple[int, ...], rate: Rate = UNLIMITED
    ) -> None:
        """Begin to copy: rows from `since` on are at offsets after `alive_from`."""
        self.plan, self.since, self.alive_from = plan, since, alive_from
        self.blocks = rate.pages(DEFAULT_BLOCKS)

    def restart(self) -> None:
        """Forget the copied chunks: the table was replaced."""
        self.plan = self.since = None
        self.done, self.rows, self.high = set(), 0, Lsn(0)
        self.alive_from = self.ends = ()
        self.is_whole = False
        self.stale = True  # what was copied so far

    def left(self) -> list[tuple[int, Chunk]]:
        """Return number and pages of the chunks that are not on the log yet."""
        assert self.plan is not None  # noqa: S101 - called after `begin`
        chunks = chunks_of(self.plan.stores, self.blocks)
        return [(number, c) for number, c in enumerate(chunks) if number not in self.done]

    def to_record(self) -> TableBackfill:
        """Return the progress record from which another attempt continues."""
        return TableBackfill(
            table=self.relation.name,
            reason=self.reason,
            since=self.since,
            stale=self.stale,
            scope=self.scope,
            columns=self.plan.columns if self.plan else "",
            stores=self.plan.stores if self.plan else (),
            blocks=self.blocks,
            done=ranges_of(self.done),
            rows=self.rows,
            high=self.high,
            topic_id=self.topic_id,
            alive_from=self.alive_from,
            ends=self.ends,
            is_excluded=self.is_excluded,
            fault=self.fault,
        )


def table_tasks(
    environment: Environment,
    anew: Collection[TableName],
    frontier: Frontier | None,
    backfill: BackfillRecord | None,
    refiltered: Collection[TableName] = (),
) -> list[TableTask]:
    """Return the tables to copy at the start of an attempt.

    `anew` are tables that are not on the log, or not as the settings want them. `refiltered` tables
    have another row filter than when their backfill was interrupted. Frontier and backfill are of
    this epoch.
    """
    cut_offs = dict(backfill.tables) if backfill is not None else {}
    relations = {environment.topics[table]: environment.relations[table] for table in anew}
    for topic, cut_off in cut_offs.items():
        is_there = environment.topics.get(cut_off.table) == topic
        done = frontier.since.get(topic) if frontier is not None else None
        is_done = done is not None and cut_off.since is not None and done >= cut_off.since
        if is_there and not is_done:
            relations.setdefault(topic, environment.relations[cut_off.table])
    ends = environment.frontiers.ends(list(relations))
    tasks = []
    for topic, relation in sorted(relations.items(), key=lambda pair: pair[1].name):
        before = cut_offs.get(topic)
        task = TableTask(
            relation=relation,
            topic=topic,
            reason=before.reason if before is not None else "the log does not have it",
            scope=environment.scopes.get(relation.name, WHOLE),
            is_new=relation.name in anew or not relation.key,
            stale=any(ends[topic]),
            topic_id=environment.topic_ids[topic],
        )
        if before is not None and before.is_excluded:
            task.is_new = task.is_excluded = True
            task.reason, task.high = before.reason, before.high
            # Without a topic the table was refused at a start; every start examines it again.
            task.fault = before.fault if before.topic_id else ""
        spoken = frontier is not None and topic in frontier.tables
        task.is_spoken_of = task.is_new and spoken
        continues = before is not None and before.since is not None and task.is_keyed
        if before is not None and continues and relation.name not in refiltered:
            same = (before.table, before.scope, before.topic_id)
            if same == (relation.name, task.scope, task.topic_id):
                task.resume(before)
        tasks.append(task)
    return tasks
