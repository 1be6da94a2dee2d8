"""Rules of the settings for columns that are left out or masked, checked at the start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version

from changelog.capture.rows.groups import TableGroups
from changelog.capture.rows.shape import Hashing, Masking, Redacting, RowShape
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.pattern import covers, is_wild
from changelog.contract.forms.event import LABELS, NOWHERE, EventOrigin
from changelog.contract.log.form import Envelope
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.scope import HASH, MASKS, OPERATIONS, WHOLE, Scope
from changelog.contract.rows.relation import Relation, TableName
from changelog.postgres.connection import Connection
from changelog.sections import CaptureSettings
from changelog.source.connect.versions import SENDS_MESSAGES, need
from changelog.source.tables.catalogue import Catalogue, Unkeyed
from changelog.source.tables.filter import ColumnPattern, TablePattern
from changelog.source.tables.publication import sends_stored

log = logging.getLogger("changelog.capture")
LEAST_KEY_BYTES = 16
_FINGERPRINT = 16


class CaptureRules:
    """Knows the scope of each table, and the shape of its rows."""

    def __init__(self, capture: CaptureSettings, database: str = "") -> None:
        """Read the settings; `database` is the source's name.

        Raises ConfigurationError: one cannot be used.
        """
        self._operations = _operations(capture.operations)
        self._allow_unkeyed = capture.allow_unkeyed
        self.form = capture.form  # of all records
        self._origin = NOWHERE
        if self.form.envelope is Envelope.NESTED:
            name = capture.topic_prefix or capture.slot
            self._origin = EventOrigin(version("changelog-store"), name, database)
        self._dropped = [ColumnPattern.parse(text) for text in capture.drop_columns]
        self._masked = [(ColumnPattern.parse(text), how) for text, how in capture.mask.items()]
        self._indexed = [TablePattern.parse(text) for text in capture.key_index]
        self._rows = [(TablePattern.parse(text), where) for text, where in capture.where.items()]
        for pattern, how in self._masked:
            if how not in MASKS:
                raise ConfigurationError(
                    f'the mask of "{pattern.text}" is neither of {", ".join(MASKS)}'
                )
        self._hashing = Hashing(capture.mask_key.encode())
        hashed = any(how == HASH for _, how in self._masked)
        if hashed and len(self._hashing.key) < LEAST_KEY_BYTES:
            raise ConfigurationError(
                f"a mask by hash needs a key of at least {LEAST_KEY_BYTES} bytes",
                hint="export CHANGELOG_MASK_KEY=…, and keep it: another key gives other hashes",
            )

    @property
    def unkeyed(self) -> Unkeyed:
        """Return the rule for tables without a primary key."""
        return unkeyed_of(self._allow_unkeyed, self._operations)

    @property
    def operations(self) -> tuple[str, ...]:
        """Return the operations that are captured."""
        return self._operations

    def scope(self, relation: Relation) -> Scope:
        """Return the scope of a table that its topic is to hold."""
        masked = tuple(
            (pattern.column, how)
            for pattern, how in self._masked
            if pattern.table.matches(relation.name)
        )
        return Scope(
            operations=self._operations,
            dropped=tuple(p.column for p in self._dropped if p.table.matches(relation.name)),
            masked=masked,
            mask_key=self._fingerprint() if any(how == HASH for _, how in masked) else "",
            rows=self.where(relation.name),
            keyed=bool(relation.key),
            form=self.form,
        )

    def where(self, table: TableName) -> str:
        """Return the condition that a table's rows have to meet, or an empty text."""
        conditions = [where.strip() for pattern, where in self._rows if pattern.matches(table)]
        return (
            conditions[0]
            if len(conditions) == 1
            else " AND ".join(f"({condition})" for condition in conditions)
        )

    def shape(self, relation: Relation) -> RowShape:
        """Return the shape in which rows of a relation version are written."""
        scope = self.scope(relation)
        places = [i for i, column in enumerate(relation.columns) if not scope.drops(column.name)]
        masks = [self._mask(scope.mask_of(relation.columns[place].name)) for place in places]
        return RowShape(relation, tuple(places), tuple(masks), form=self.form, origin=self._origin)

    def _mask(self, how: str | None) -> Masking | None:
        if how is None:
            return None
        return self._hashing if how == HASH else Redacting()

    def _fingerprint(self) -> str:
        """Return a fingerprint that identifies a key and does not disclose it."""
        return self._hashing(b"changelog mask key").decode()[:_FINGERPRINT]

    def problems(self, relations: Iterable[Relation]) -> list[str]:
        """Return the demands of the rules that cannot be met; each names table and column."""
        relations = list(relations)
        problems = []
        for relation in relations:
            scope = self.scope(relation)
            for name in relation.key:
                if scope.drops(name):
                    problems.append(
                        f'"{relation.name}.{name}" is in the primary key, so it must stay'
                    )
                elif scope.mask_of(name) not in {None, HASH}:
                    problems.append(
                        f'"{relation.name}.{name}" is in the primary key: only a hash keeps keys '
                        "apart"
                    )
        if self.form.envelope is Envelope.LABELLED:
            problems += [
                f'"{relation.name}" has the column "{column.name}", which is a label\'s name'
                for relation in relations
                for column in relation.columns
                if column.name in LABELS
            ]
        return problems

    def _idle(self, relations: Iterable[Relation]) -> Iterator[tuple[str, TablePattern, str]]:
        """Yield the patterns without a table or column: the problem, the pattern and the column."""
        relations = list(relations)
        for column in (*self._dropped, *(column for column, _ in self._masked)):
            if not _names_a_column(column, relations):
                problem = f'no captured table has a column "{column.text}"'
                yield problem, column.table, column.column
        settings = [(pattern, "a row filter") for pattern, _ in self._rows]
        # A pattern with wildcards may wait for a table that needs it.
        settings += [
            (pattern, "a key index") for pattern in self._indexed if pattern.name is not None
        ]
        for pattern, setting in settings:
            if not any(pattern.matches(relation.name) for relation in relations):
                yield (
                    f'no captured table is called "{pattern.text}", which has {setting}',
                    pattern,
                    "",
                )

    def check(
        self,
        relations: Iterable[Relation],
        *,
        last: Frontier | None = None,
        was_captured: Callable[[TableName], bool] = lambda _: False,
    ) -> None:
        """Check that the rules fit the tables.

        A rule that a running capture had in force is no mistake when its column or its table goes
        while capture runs, nor at the next start. The last frontier tells what was in force, and
        `was_captured` whether a table was captured once.

        Raises ConfigurationError: they do not fit; names all that is wrong.
        """
        relations = list(relations)
        problems, names = self.problems(relations), {relation.name for relation in relations}
        for problem, pattern, column in self._idle(relations):
            name = pattern.name
            is_gone = name is not None and name not in names and was_captured(name)
            if is_gone or (column and last is not None and _was_in_force(last, pattern, column)):
                log.warning("%s any more", problem)
            else:
                problems.append(problem)
        if problems:
            raise ConfigurationError(
                "; ".join(problems),
                hint="look at --columns, --mask, --where and --key-index; names have case",
            )

    @property
    def is_whole(self) -> bool:
        """Tell whether every table is captured whole."""
        return self._operations == OPERATIONS and not (self._dropped or self._masked or self._rows)


def unkeyed_of(allowed: bool, operations: Iterable[str]) -> Unkeyed:
    """Return the settings' rule for tables without a primary key."""
    if not allowed:
        return Unkeyed.REFUSED
    return Unkeyed.CHANGED if _sends_old(operations) else Unkeyed.ADDED


def _sends_old(operations: Iterable[str]) -> bool:
    return bool({"update", "delete"} & {*operations})


def key_index_of(capture: CaptureSettings) -> Callable[[TableName], str]:
    """Return the function that names the index of a table's key: a name goes before a pattern.

    Raises ConfigurationError: a pattern of tables cannot be used.
    """
    parsed = [(TablePattern.parse(text), index) for text, index in capture.key_index.items()]
    named = sorted(parsed, key=lambda pair: pair[0].name is None)
    return lambda table: next((index for pattern, index in named if pattern.matches(table)), "")


def groups_of(capture: CaptureSettings) -> TableGroups:
    """Return the publications and the tables that each sends.

    Raises ConfigurationError: a pattern does not parse.
    """
    groups = {group.publication: group.tables for group in capture.slot_groups}
    return TableGroups(capture.publication, groups)


def catalogue_of(
    connection: Connection,
    capture: CaptureSettings,
    *,
    gives_full: bool = False,
    tells_old: bool = False,
) -> Catalogue:
    """Return the catalogue under the settings and the publication.

    With `gives_full` tables may be given REPLICA IDENTITY FULL, where that is asked for. With
    `tells_old` records have the old row besides, whatever their envelope is.

    Raises SourceError: the publication cannot be read, or the server is too old for an option;
    ConfigurationError: a pattern of columns cannot be used.
    """
    for option, is_asked in {"--messages": capture.messages, "--ddl": capture.ddl}.items():
        if is_asked:
            need(connection.server_version, SENDS_MESSAGES, option, hint=f"leave {option} out")
    dropped = [ColumnPattern.parse(text) for text in capture.drop_columns]
    return Catalogue(
        connection,
        unkeyed_of(capture.allow_unkeyed, capture.operations),
        gives_full=_wants_full(capture, tells_old=tells_old) if gives_full else None,
        sends_stored=sends_stored(
            connection, capture.publication, is_ours=capture.create_publication
        ),
        drops=lambda table, column: any(pattern.matches(table, column) for pattern in dropped),
        key_index=key_index_of(capture),
        sends_old=_sends_old(capture.operations),
    )


def _wants_full(capture: CaptureSettings, *, tells_old: bool) -> Callable[[TableName], bool] | None:
    """Return a test of whether a table needs its old rows, or None if no table is altered.

    Others are altered only if they cannot be captured as they are: an old row costs the source WAL.
    """
    if not capture.replica_identity:
        return None
    filtered = [TablePattern.parse(text) for text in capture.where]
    tells_old |= capture.envelope in {Envelope.NESTED, Envelope.FLAT}
    comes = _sends_old(capture.operations)
    return lambda table: (
        comes and (tells_old or any(pattern.matches(table) for pattern in filtered))
    )


def _operations(operations: Iterable[str]) -> tuple[str, ...]:
    operations = set(operations)
    unknown = sorted(operations - set(OPERATIONS))
    if unknown or not operations:
        raise ConfigurationError(
            f"--operations cannot be {', '.join(unknown) or 'empty'}",
            hint=f"some of {', '.join(OPERATIONS)}",
        )
    return tuple(operation for operation in OPERATIONS if operation in operations)


def _was_in_force(last: Frontier, pattern: TablePattern, column: str) -> bool:
    """Tell whether a rule about a column was in force at a frontier."""
    return any(
        column in {*scope.dropped, *(masked for masked, _ in scope.masked)}
        for topic, scope in last.scopes.items()
        if topic in last.tables and pattern.matches(last.tables[topic])
    )


def _names_a_column(pattern: ColumnPattern, relations: list[Relation]) -> bool:
    """Tell whether a pattern covers a column; one with wildcards may wait for a table."""
    if is_wild(pattern.column) or pattern.table.name is None:
        return True
    return any(
        covers(pattern.column, column)
        for relation in relations
        if pattern.table.matches(relation.name)
        for column in (*(described.name for described in relation.columns), *relation.generated)
    )


def narrowed(scopes: dict[TableName, Scope]) -> dict[TableName, Scope]:
    """Keep the scopes that are not whole."""
    return {table: scope for table, scope in scopes.items() if scope != WHOLE}
