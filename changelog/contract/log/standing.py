"""The state of captured tables in the catalogue when capture last looked (pure).

Some changes of a table give its rows other values, or take rows away, without a word in the
stream. They leave marks in the catalogue. What capture saw there stands beside the frontiers, and
each frontier is written only after a look that found none of these marks between the two.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import KeyIndex, TableName
from changelog.contract.rows.user_type import UserType, type_from_json, types_changed

_MARK = "#tables"  # no character of a slot's name


def standing_key(slot: str) -> bytes:
    """Return the key under which the standing of a slot's tables is on the frontier topic."""
    return f"{slot}{_MARK}".encode()


@dataclass(frozen=True, slots=True)
class SeenColumn:
    """A column as the catalogue had it."""

    number: int  # `attnum`; a column that is dropped and made again has another
    xid: int  # who wrote its entry in the catalogue last
    type: tuple[int, int]  # oid and modifier of its type
    missing: bool  # whether older rows have its constant in the catalogue
    rest: str = ""  # of what else its entry says; empty in what an earlier version has written
    # whether its entry was written last in the transaction that made the table's file and indexes,
    # and behind them. What gives rows other values writes the column's entry first; what rewrites
    # rows as they are takes constants out of the entries in the end
    cleared: bool = field(default=False, compare=False)
    # whether its entry and the table's own were written last by one command: the column came, and
    # nothing was rewritten since
    came: bool = field(default=False, compare=False)

    def to_json(self) -> list[Any]:
        """Return it as the record stores it."""
        more = [self.cleared, self.came] if self.cleared or self.came else []
        return [self.number, self.xid, *self.type, self.missing, self.rest, *more]

    @classmethod
    def from_json(cls, raw: Sequence[Any]) -> Self:
        """Read what `to_json` gave, or an earlier version, which stored less."""
        number, xid, kind, modifier, *more = raw
        return cls(number, xid, (kind, modifier), *more)


@dataclass(frozen=True, slots=True)
class SeenStore:
    """A holder of rows: the table, or one of its partitions."""

    filenode: int  # its file; another one after a rewrite or a truncation; 0 for one without
    xid: int  # who wrote its entry in the catalogue last
    joined: int = 0  # who made it a partition; 0 for a table
    attached: bool = False  # whether it was a table before it became a partition
    # who wrote the entries of its indexes last. A new file of the table makes new files of all
    # indexes, while ADD COLUMN writes the entry of the table alone
    indexed: frozenset[int] = field(default=frozenset(), compare=False)

    def is_as_made(self, oid: int) -> bool:
        """Tell whether it has its first file still: PostgreSQL names that by the object id."""
        return self.filenode in {0, oid}

    def emptied_by(self, truncated: Collection[int]) -> set[int]:
        """Return the truncations after whose transaction nothing created a new file."""
        return {*truncated} & (self.indexed or {self.xid})

    def to_json(self) -> list[Any]:
        """Return it as the record stores it."""
        more = [sorted(self.indexed)] if self.indexed else []
        return [self.filenode, self.xid, self.joined, self.attached, *more]

    @classmethod
    def from_json(cls, raw: Sequence[Any]) -> Self:
        """Read what `to_json` gave, or an earlier version, which stored less."""
        filenode, xid, joined, attached, *indexed = raw
        return cls(filenode, xid, joined, attached, frozenset(*indexed))


@dataclass(frozen=True, slots=True)
class Standing:
    """A table as the catalogue had it."""

    oid: int  # its object id
    name: TableName
    columns: Mapping[str, SeenColumn]  # the live ones, by name
    last_number: int  # the highest `attnum` ever given
    stores: Mapping[int, SeenStore]  # by object id
    # the enums and composite types that its columns show, by object id; None in what an earlier
    # version of capture has written
    types: Mapping[int, UserType] | None
    # the index that gives the key where it is no primary key's; None too where that index is gone,
    # or can give a key no more
    key_index: KeyIndex | None = None
    # whether the stream tells of truncations; else each new file may be one
    hears_truncate: bool = True
    # object id of its primary key, which an index made again by REINDEX keeps; 0 without one, None
    # in what an earlier version of capture has written
    key_constraint: int | None = None

    @property
    def is_partitioned(self) -> bool:
        """Tell whether partitions hold its rows."""
        return self.oid not in self.stores

    def change_since(self, before: Standing, truncated: Collection[int]) -> str:
        """Return the silent change since an earlier look, or an empty text.

        `truncated` has the transactions of which the stream said that they truncated the table.
        """
        if self.oid != before.oid:
            return "another table has its name now"
        if self.key_index != before.key_index:
            # Rows of one key may have stood side by side meanwhile, and one of them gone.
            return "another index gives its key now, or the same one made anew"
        if before.key_constraint and self.key_constraint != before.key_constraint:
            return "its primary key was made anew, and rows may have shared a key meanwhile"
        return (
            (f'the table is called "{self.name}" now' if self.name != before.name else "")
            or self._columns_changed(before)
            or self._shown_otherwise(before)
            or (
                self._partitions_changed(before, truncated)
                if self.is_partitioned
                else self._rewritten(before, truncated)
            )
        )

    def misplaced(self, names: Sequence[str]) -> list[str]:
        """Return the columns that do not stand where they may, by their numbers.

        The stream brings columns by their numbers, so that a name stands where another column is
        when columns have changed names meanwhile. Names are of the live columns in their order,
        maybe without some.
        """
        places = [
            (place, name, self.columns[name].number)
            for place, name in enumerate(names)
            if name in self.columns
        ]
        numbers = sorted(number for _, _, number in places)
        return sorted(
            name
            for (place, name, number), in_order in zip(places, numbers, strict=True)
            if number != in_order or place >= number
        )

    def has_other_columns(self, before: Standing) -> bool:
        """Tell whether columns came or went, or have another type."""
        mine = {name: (column.number, column.type) for name, column in self.columns.items()}
        old = {name: (column.number, column.type) for name, column in before.columns.items()}
        return mine != old

    def is_unexplained(self, before: Standing, truncated: Collection[int]) -> bool:
        """Tell whether a truncation that the stream is still to bring may explain a change."""
        if self.oid != before.oid or not self.hears_truncate:
            return False
        if self.is_partitioned:
            return bool(self._other_files(before, truncated))
        return bool(self._rewritten(before, truncated))

    def _columns_changed(self, before: Standing) -> str:
        old = {column.number: name for name, column in before.columns.items()}
        new = {column.number: name for name, column in self.columns.items()}
        again = sorted(
            name
            for name, column in self.columns.items()
            if name in before.columns and before.columns[name].number != column.number
        )
        if again:
            return f"columns {again} are others of the same name"
        renamed = sorted(new[at] for at in old if at in new and old[at] != new[at])
        if renamed:
            return f"columns {renamed} were renamed"
        later = range(before.last_number + 1, self.last_number + 1)
        if any(at in new for at in later) and any(at not in new for at in later):
            names = sorted(new[at] for at in later if at in new)
            return f"columns {names} came, and others came and went meanwhile"
        return ""

    def _shown_otherwise(self, before: Standing) -> str:
        if before.types is None or self.types is None:
            return ""
        return types_changed(before.types, self.types)

    def _rewritten(self, before: Standing, truncated: Collection[int]) -> str:
        store = self.stores[self.oid]
        if store.filenode == before.stores.get(self.oid, _NO_STORE).filenode:
            return ""
        if not self.hears_truncate:
            return (
                "it has a new file: it was truncated, which PostgreSQL before 11 does not send, or "
                "rewritten"
            )
        return self._revalued(before, store.emptied_by(truncated))

    def _revalued(self, before: Standing, emptied: Collection[int]) -> str:
        """Return the columns whose values may have changed when new files were created.

        `emptied` has transactions that truncated the table before they made its last files: all
        rows came after that, and by the stream, so only the same transaction may have altered
        columns when there were rows again.
        """
        columns = {
            name: column
            for name, column in self.columns.items()
            if not emptied or column.xid in emptied
        }
        # VACUUM FULL makes a new file too, but touches no column, save to take its constant out.
        altered = sorted(
            name
            for name, column in columns.items()
            if name in before.columns and _is_altered(before.columns[name], column)
        )
        if altered:
            return (
                f"columns {altered} were altered and the table was rewritten, maybe with other "
                "values"
            )
        came = sorted(
            name
            for name, column in columns.items()
            if column.number > before.last_number and not (column.missing or column.came)
        )
        if came:
            return f"columns {came} came and the table was rewritten, maybe with values in them"
        return ""

    def _partitions_changed(self, before: Standing, truncated: Collection[int]) -> str:
        if set(before.stores) - set(self.stores):
            return "a partition was detached or dropped, with its rows"
        joined = [
            store
            for oid, store in self.stores.items()
            if oid not in before.stores or before.stores[oid].joined != store.joined
        ]
        if any(store.attached for store in joined):
            return "a table was attached as a partition, with the rows that it had"
        if self._other_files(before, truncated):
            return "a partition was truncated or rewritten by itself"
        new_files = [
            store
            for oid, store in self.stores.items()
            if oid in before.stores and before.stores[oid].filenode != store.filenode
        ]
        emptied = {xid for store in new_files for xid in store.emptied_by(truncated)}
        return self._revalued(before, emptied) if emptied else ""

    def _other_files(self, before: Standing, truncated: Collection[int]) -> list[int]:
        return [
            oid
            for oid, store in self.stores.items()
            if not (
                before.stores[oid].filenode == store.filenode
                if oid in before.stores
                else store.is_as_made(oid)
            )
            and not store.emptied_by(truncated)
        ]

    def to_json(self, types: dict[str, int]) -> list[Any]:
        """Return it as the record stores it.

        `types` takes in those of the table as JSON, each once, with its place.
        """
        shown = None
        if self.types is not None:
            texts = {oid: _compact(user_type.to_json()) for oid, user_type in self.types.items()}
            shown = {str(oid): types.setdefault(text, len(types)) for oid, text in texts.items()}
        index = self.key_index
        key = None if index is None else [index.oid, index.name, list(index.columns)]
        more = [key, self.hears_truncate, self.key_constraint]
        while more and more[-1] == _LEFT_OUT[len(more) - 1]:
            more.pop()
        return [
            self.oid,
            list(self.name),
            {name: column.to_json() for name, column in self.columns.items()},
            self.last_number,
            {str(oid): store.to_json() for oid, store in self.stores.items()},
            shown,
            *more,
        ]

    @classmethod
    def from_json(cls, raw: list[Any], types: Sequence[UserType]) -> Self:
        """Read what `to_json` gave, or an earlier version, which knew no types."""
        oid, name, columns, last_number, stores, shown, index, hears, constraint = _whole(raw)
        return cls(
            oid,
            TableName(*name),
            {name: SeenColumn.from_json(column) for name, column in columns.items()},
            last_number,
            {int(store_oid): SeenStore.from_json(store) for store_oid, store in stores.items()},
            None
            if shown is None
            else {int(type_oid): types[place] for type_oid, place in shown.items()},
            None if index is None else KeyIndex(index[0], index[1], tuple(index[2])),
            hears,
            constraint,
        )


_LEFT_OUT = (None, True, None)  # what the last parts of a standing are where they are not written
_LEAST = 5


def _whole(raw: list[Any]) -> list[Any]:
    ends = (None, *_LEFT_OUT)
    return [*raw, *ends[len(raw) - _LEAST :]]


_NO_STORE = SeenStore(0, 0)


def _is_altered(before: SeenColumn, now: SeenColumn) -> bool:
    if before.number != now.number or before.xid == now.xid:
        return False
    is_same = before.type == now.type and before.rest in {now.rest, ""}
    return not (is_same and before.missing and not now.missing and now.cleared)


@dataclass(frozen=True, slots=True)
class Sighting:
    """Another standing of a table, which the stream may not have reached yet."""

    standing: Standing  # the table, as a look has seen it first
    before: Lsn  # what made it so was committed before this LSN


@dataclass(frozen=True, slots=True)
class PublicationVersion:
    """A value that changes whenever a publication does."""

    own: tuple[int, int]  # of itself: object id, and who wrote its entry last
    says: str  # what its entry says: name, owner, operations, partitions
    # of each table and schema that it names, with their object ids
    entries: frozenset[tuple[int, str]]
    # those of the groups of tables beside it, by name
    groups: tuple[tuple[str, PublicationVersion], ...] = ()

    def taken_out_since(self, before: Self) -> frozenset[int] | None:
        """Return the tables that it did not send for a while since an earlier look; None means all.

        A table that is taken out and put in again has another entry. A publication that was altered
        and says what it said before has sent something else meanwhile; one that says something else
        is compared with what is wanted.
        """
        oids: frozenset[int] = frozenset()
        groups = dict(self.groups)
        for name, old in before.groups:
            now = groups.get(name)
            taken = now.taken_out_since(old) if now is not None else old.all_oids
            if taken is None:
                return None
            oids |= taken
        if self.own[0] != before.own[0] or (self.own != before.own and self.says == before.says):
            return None
        others = before.entries - self.entries
        if any(text.startswith(_SCHEMA) for _, text in others):
            return None
        return oids | {oid for oid, _ in others}

    @property
    def all_oids(self) -> frozenset[int]:
        """Return the object ids of all that it names."""
        return frozenset(oid for oid, _ in self.entries)

    def to_json(self) -> list[Any]:
        """Return it as the record stores it."""
        groups = [{name: version.to_json() for name, version in self.groups}] if self.groups else []
        return [[*self.own], self.says, sorted(map(list, self.entries)), *groups]

    @classmethod
    def from_json(cls, raw: list[Any]) -> Self:
        """Read what `to_json` gave."""
        (oid, xid), says, entries, *more = raw
        groups = more[0].items() if more else ()
        return cls(
            (oid, xid),
            says,
            frozenset((oid, text) for oid, text in entries),
            tuple((name, cls.from_json(version)) for name, version in groups),
        )


_SCHEMA = "schema "


@dataclass(frozen=True, slots=True)
class Standings:
    """The states of a slot's tables, by topic."""

    epoch: int  # of the slot
    tables: Mapping[str, Standing]  # as frontiers speak of them
    # what came after that, in its order, of tables whose changes the stream is still to reach
    sighted: Mapping[str, Sequence[Sighting]] = field(default_factory=dict)
    # which sends them; None in what an earlier version of capture has written
    publication: PublicationVersion | None = None

    def to_json(self) -> str:
        """Return the value of the record on the frontier topic."""
        types: dict[str, int] = {}
        tables = {topic: standing.to_json(types) for topic, standing in self.tables.items()}
        sighted = {
            topic: [
                [sighting.standing.to_json(types), str(sighting.before)] for sighting in sightings
            ]
            for topic, sightings in self.sighted.items()
        }
        return _compact(
            {
                "epoch": self.epoch,
                "tables": tables,
                "sighted": sighted,
                "publication": self.publication.to_json() if self.publication else None,
                "types": [*map(json.loads, types)],
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the value of a record on the frontier topic.

        Raises CorruptRecordError: the text is something else.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            types = [type_from_json(user_type) for user_type in raw.get("types", [])]
            tables = {
                topic: Standing.from_json(standing, types)
                for topic, standing in raw["tables"].items()
            }
            sighted = {
                topic: tuple(
                    Sighting(Standing.from_json(standing, types), Lsn.parse(before))
                    for standing, before in sightings
                )
                for topic, sightings in raw.get("sighted", {}).items()
            }
            published = raw.get("publication")
            version = None if published is None else PublicationVersion.from_json(published)
            return cls(raw["epoch"], tables, sighted, version)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise CorruptRecordError(f"a record is no standing of tables: {error!r}") from error


def _compact(raw: object) -> str:
    return json.dumps(raw, separators=(",", ":"))
