"""A batch of one table's rows to framed keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from changelog.batch.columns import ColumnEncoder
from changelog.batch.fields import Fields
from changelog.batch.pool import Numbers, Pool
from changelog.contract.codec import SchemaIds, frame
from changelog.contract.errors import EncodeError
from changelog.contract.relation import Column, Relation


class BatchCodec:
    """Encodes what `RowCodec` encodes, to the same bytes, many rows at a time."""

    def __init__(self, relation: Relation, ids: SchemaIds) -> None:
        """Prepare for one version of a table."""
        self.relation = relation
        self._key = _RecordEncoder(
            relation, relation.key_indexes, frame(ids.key), nullable=frozenset()
        )
        outside = frozenset(range(len(relation.columns))) - frozenset(relation.key_indexes)
        self._value = _RecordEncoder(
            relation, range(len(relation.columns)), frame(ids.value), nullable=outside
        )

    def encode_keys(self, columns: Sequence[Fields]) -> list[bytes]:
        """Encode the primary keys of rows, framed.

        Args:
            columns: fields of all columns of the table, in its order; only those of the key are
                looked at.

        Raises:
            EncodeError: a value has no exact form; names table and column.
        """
        return self._key.encode(columns)

    def encode_values(self, columns: Sequence[Fields]) -> list[bytes]:
        """Encode whole rows, framed.

        Raises:
            EncodeError: a value has no exact form; names table and column.
        """
        return self._value.encode(columns)


class _RecordEncoder:
    """Encodes one Avro record over some columns."""

    def __init__(
        self, relation: Relation, indexes: Sequence[int], head: bytes, nullable: frozenset[int]
    ) -> None:
        self._relation = relation
        self._head = head
        self._indexes = list(indexes)
        self._encoders = {
            index: ColumnEncoder(
                relation.columns[index].type,
                nullable=index in nullable,
                null_second=index in nullable and relation.columns[index].has_default,
            )
            for index in self._indexes
        }
        # Where fields are taken as they stand, it is in the order of the buffer.
        self._texts = sorted(i for i, encoder in self._encoders.items() if encoder.is_text)

    def encode(self, columns: Sequence[Fields]) -> list[bytes]:
        pool = Pool()
        texts: dict[int, Numbers] = {}
        if self._texts:
            numbers = pool.add_fields([columns[index] for index in self._texts])
            texts = dict(zip(self._texts, numbers, strict=True))
        pieces = [pool.add_all([self._head])]
        for index in self._indexes:
            pieces.append(self._added(index, columns[index], pool))
            if index in texts:
                pieces.append(texts[index])
        return pool.joined(pieces, len(columns[0]))

    def _added(self, index: int, fields: Fields, pool: Pool) -> Numbers:
        try:
            return self._encoders[index].add(fields, pool)
        except (ValueError, IndexError, ArithmeticError, EncodeError) as error:
            raise refusal(self._relation, self._relation.columns[index], error) from error


def refusal(relation: Relation, column: Column, error: Exception) -> EncodeError:
    """Say that a value has no exact form."""
    return EncodeError(
        f'table "{relation.name}", column "{column.name}" ({column.type.name}): '
        f"a value has no exact Avro form: {error}",
        hint="exclude the table or the column, or correct the value at the source",
    )


def fields_of(rows: Sequence[Sequence[bytes | None]], width: int) -> list[Fields]:
    """Lay out rows that are Python values already, for tests and for small batches."""
    flat = [field for row in rows for field in row]
    null = np.fromiter((f is None for f in flat), dtype=bool, count=len(flat))
    size = np.fromiter((len(f) if f else 0 for f in flat), dtype=np.int64, count=len(flat))
    start = np.cumsum(size) - size
    buffer = np.frombuffer(b"".join([f for f in flat if f]) + bytes(1), dtype=np.uint8)
    return [
        Fields(buffer, start[at::width], size[at::width], null[at::width]) for at in range(width)
    ]
