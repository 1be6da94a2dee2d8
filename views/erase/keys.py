"""The keys that are erased: as a person writes them, as the source does, and as bytes."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.text import encoder
from replay.decode.schemas import TopicSchemas

Key = Mapping[str, str]
"""Of each column of the primary key its value as text."""


def parse_keys(parts: Sequence[str], file: Path | None) -> list[dict[str, str]]:
    """Parse the keys of a command line: the columns of one, or a file with an object a line.

    Raises ConfigurationError: there is none, or one is not written so.
    """
    keys = [_from_parts(parts)] if parts else []
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{file} cannot be read: {error}") from error
        keys += [_from_line(line, f"{file}, line {n}") for n, line in enumerate(lines, 1) if line]
    if not keys:
        raise ConfigurationError(
            "no key is given", hint="--key id=42; a key of several columns: --key a=1 --key b=2"
        )
    return keys


def _from_parts(parts: Sequence[str]) -> dict[str, str]:
    key: dict[str, str] = {}
    for part in parts:
        column, sign, value = part.partition("=")
        if not (column and sign) or column in key:
            raise ConfigurationError(
                "--key is written COLUMN=VALUE, once for each column of the primary key",
                hint="keys of several rows are given in a file: --keys FILE",
            )
        key[column] = value
    return key


def _from_line(line: str, place: str) -> dict[str, str]:
    try:
        key = json.loads(line)
        items = [(column, value) for column, value in key.items()]
    except (ValueError, AttributeError):
        items = []
    if not items or any(isinstance(value, (dict, list, bool, float)) for _, value in items):
        raise ConfigurationError(
            f'{place}: it is no object with the columns of a key, such as {{"id": 42}}',
            hint="write values that are no whole numbers as texts, in PostgreSQL's form",
        )
    return {column: str(value) for column, value in items}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedKeys:
    """The keys of one table, as the log has them."""

    table: TableName
    topic: str
    columns: tuple[str, ...]  # of the primary key, in its order
    texts: tuple[tuple[str, ...], ...]  # of each key its values in PostgreSQL's own text form
    bodies: frozenset[bytes]  # the same as the log has them, without the frame of a schema
    schema: str  # of the keys on the log

    def digests(self, secret: bytes) -> list[str]:
        """Return a digest of each key, which only who has the secret can compare; in order."""
        return sorted(self._digest(secret, text) for text in self.texts)

    def digest(self, secret: bytes) -> str:
        """Return one digest of all keys."""
        return self._digest(secret, sorted(self.texts))

    def _digest(self, secret: bytes, value: object) -> str:
        document = [[*self.table], [*self.columns], value]
        return hmac.new(secret, json.dumps(document).encode(), hashlib.sha256).hexdigest()


def encoded(keys: Iterable[Sequence[str]], table: TableName, schemas: TopicSchemas) -> ErasedKeys:
    """Return keys as the log has them.

    `keys`: of each its values in PostgreSQL's own text form, in the order of the primary key.
    """
    texts = tuple(dict.fromkeys(map(tuple, keys)))
    logged = schemas.logged(schemas.reader_id)
    types = {column.column: column.type for column in logged.columns}
    encoders = [encoder(types[name], nullable=False) for name in logged.key]
    bodies = frozenset(
        b"".join(encode(text.encode()) for encode, text in zip(encoders, key, strict=True))
        for key in texts
    )
    return ErasedKeys(
        table=table,
        topic=schemas.topic,
        columns=logged.key,
        texts=texts,
        bodies=bodies,
        schema=schemas.key,
    )
