"""The errors of the product: one root, families by what the reader has to do about them.

An error states facts and what to do: one lower-case line, then ` | hint: …`. The message never
holds a secret: connection strings go through `changelog.contract.base.secret.redacted` first.
"""

from __future__ import annotations


class ChangelogError(Exception):
    """Root of all errors that we raise on purpose."""

    exit_code = 1  # what a command ends with when this error reaches its edge

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint  # what to do about it, or an empty string

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the hint, so that an error of a worker process arrives whole."""
        return _rebuilt, (type(self), self.args, self.hint)

    def __str__(self) -> str:
        text = str(self.args[0]) if self.args else type(self).__name__
        return f"{text} | hint: {self.hint}" if self.hint else text


def _rebuilt(kind: type[ChangelogError], args: tuple[object, ...], hint: str) -> ChangelogError:
    error = kind.__new__(kind)
    Exception.__init__(error, *args)
    error.hint = hint
    return error


class ConfigurationError(ChangelogError):
    """The usage or the configuration is wrong: the user has to change it."""

    exit_code = 2


class StackError(ChangelogError):
    """An embedded server could not be fetched, started or stopped."""


class UnavailableError(ChangelogError):
    """A server does not answer now; trying again later may succeed."""


class SourceError(ChangelogError):
    """PostgreSQL refuses or cannot give what capture needs."""


class UnavailableSourceError(SourceError, UnavailableError):
    """PostgreSQL does not answer now."""


class LookAgainError(SourceError):
    """The source or the log has changed since the start: capture has to start a new attempt."""


class UncapturableTableError(SourceError):
    """A table cannot be captured as asked: no primary key, wrong replica identity, missing."""

    exit_code = 2


class SlotError(SourceError):
    """The replication slot cannot be explained: moved, lost, in use, of another system."""


class ProtocolError(SourceError):
    """Bytes of the replication stream do not follow the protocol that we know."""


class EncodeError(ChangelogError):
    """A value of PostgreSQL has no exact form in the Avro type of its column."""


class LogError(ChangelogError):
    """The log (topics, registry, frontier) is not as the contract demands."""


class UnavailableLogError(LogError, UnavailableError):
    """The broker or the schema registry does not answer now."""


class RefusedAccessError(UnavailableLogError):
    """The broker or the schema registry does not let us in: TLS, user or password.

    At a first start it is a matter of configuration. A capture that was let in before waits, as
    for a server that is away: passwords and certificates are exchanged while it runs.
    """

    exit_code = 2


class TopicSettingsError(LogError):
    """An existing topic has settings under which the log would lose rows."""

    exit_code = 2


class SchemaConflictError(LogError):
    """The registry holds, or demands, another schema than the one that we need."""


class KeyConflictError(SchemaConflictError):
    """A table has another primary key than its topic: a fresh copy alone does not mend it."""


class RecordRefusedError(LogError):
    """A topic does not take a record, whatever is tried: it is too large, or not allowed."""

    topic: str = ""  # which one; empty behind a process that has not kept it


class RecordsRemovedError(LogError):
    """Records that may be alive are gone from the start of a table's topic, or from its end."""


class NoFrontierError(LogError):
    """There is no frontier to read to: nothing captured yet, or another prefix or slot."""


class CorruptRecordError(LogError):
    """A record of a topic cannot be decoded; names topic, partition and offset."""


class VerdictError(LogError):
    """The log can no longer give an exact answer; the message says why."""

    exit_code = 4


class TableCopiedError(VerdictError):
    """A table is copied again, and no frontier speaks of it until that is done."""


class LogMovedError(VerdictError):
    """Topics, settings or leaders changed under a read; a new one may well be exact."""

    exit_code = 1


class ViewError(ChangelogError):
    """A view's declaration cannot be used: unknown, does not parse, names no captured table."""

    exit_code = 2


class SinkError(ChangelogError):
    """A sink refuses, has lost or cannot serve rows."""


class RefutedError(ChangelogError):
    """Verification found mismatches: the generation is not published."""

    exit_code = 3


class LockedError(ChangelogError):
    """Another process does this work right now; the message names the owner."""

    exit_code = 5
