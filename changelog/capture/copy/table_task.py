"""One table's backfill: which chunks there are, and which of them are on the log."""

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

    A table without a primary key is copied in one segment, or else anew: its rows and its changes
    have no key by which one could replace the other, so each row has to come exactly once.
    """

    relation: Relation  # the table as its rows are read
    topic: str  # where they go
    reason: str  # why
    scope: Scope  # what of the table is copied
    is_new: bool  # whether no frontier speaks of the topic until the table is whole
    stale: bool  # whether the topic may hold rows that are dead once the table is whole
    topic_id: str  # Kafka's id of the topic
    # the first position that will be alive; None before the first fence
    since: Position | None = None
    plan: TablePlan | None = None  # where the rows are; None before the first fence
    blocks: int = DEFAULT_BLOCKS  # pages of a chunk
    done: set[int] = field(default_factory=set)  # numbers of the chunks that are on the log
    rows: int = 0  # how many rows these had
    # position of the last copied rows
    high: Lsn = Lsn(0)  # noqa: RUF009 - immutable
    alive_from: tuple[int, ...] = ()  # where the topic ended when `since` was taken
    # the topic's ends when progress was written last, where no frontier tells them
    ends: tuple[int, ...] = ()
    # transactions from before this attempt that may have written to the table and be invisible
    # still; None when that is not known
    writers: frozenset[int] | None = None
    is_whole: bool = False  # whether all is on the log and only the frontier is to come
    # whether frontiers spoke of it and must not any more, see `TableBackfill`
    is_excluded: bool = False
    is_spoken_of: bool = False  # whether the last frontier still speaks of a table that is excluded
    # why the table is not copied until somebody asks for it; empty when it is. Then `high` is where
    # the source was when that was found
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
        """Begin to copy: the rows alive from `since` on are at offsets after `alive_from`."""
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
        """Return number and place of the chunks that are not on the log."""
        assert self.plan is not None  # noqa: S101 - asked for after `begin`
        chunks = chunks_of(self.plan.stores, self.blocks)
        return [(number, c) for number, c in enumerate(chunks) if number not in self.done]

    def to_record(self) -> TableBackfill:
        """Return the progress record from which another attempt goes on."""
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

    Tables in `anew` are not on the log as they are to be; rows of `refiltered` ones are filtered in
    another way than when a backfill was cut off. Frontier and backfill are of this epoch.
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
            # Without a topic it was refused at a start, and is looked at anew at each.
            task.fault = before.fault if before.topic_id else ""
        spoken = frontier is not None and topic in frontier.tables
        task.is_spoken_of = task.is_new and spoken
        goes_on = before is not None and before.since is not None and task.is_keyed
        if before is not None and goes_on and relation.name not in refiltered:
            same = (before.table, before.scope, before.topic_id)
            if same == (relation.name, task.scope, task.topic_id):
                task.resume(before)
        tasks.append(task)
    return tasks
