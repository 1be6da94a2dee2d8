"""Changes as Avro records: the schemas of the envelopes, and their bytes.

Names and fields of the nested one are those under which readers of Debezium's events know them:
record `Envelope` with `before` and `after` of record `Value`, and `source`. Fields of columns are
the same as in a row's schema, also their attributes; the outer record says `envelope`, and with
`identity` whether `before` is the whole row (`full`) or the key alone (`key`), the other columns
being null then because they are not known.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.headers import Op
from changelog.contract.forms.event import (
    AFTER,
    BEFORE,
    CONNECTOR,
    LABELS,
    Event,
    EventOrigin,
    Stamp,
    is_snapshot,
    key_as_row,
    labelled_row,
    sequence_text,
)
from changelog.contract.log.form import Envelope
from changelog.contract.rows.codec import FRAME_BYTES, RowCodec, frame
from changelog.contract.rows.relation import Relation, ReplicaIdentity, Row
from changelog.contract.rows.schema import (
    LoggedSchema,
    avro_name,
    field_names,
    read_schema,
    value_schema,
)
from changelog.contract.rows.text import NULL_BRANCH, encode_bytes, encode_long

_THERE = b"\x02"  # the second branch of a nullable union

_MAYBE_LONG = {"type": ["null", "long"], "default": None}
_SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": "string", "default": "false"},
        {"name": "db", "type": "string"},
        {"name": "sequence", "type": ["null", "string"], "default": None},
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "txId", **_MAYBE_LONG},
        {"name": "lsn", **_MAYBE_LONG},
        {"name": "xmin", **_MAYBE_LONG},
        {"name": "ts_us", **_MAYBE_LONG},
        {"name": "ts_ns", **_MAYBE_LONG},
    ],
}
_TRANSACTION = {
    "type": "record",
    "name": "block",
    "namespace": "event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "total_order", "type": "long"},
        {"name": "data_collection_order", "type": "long"},
    ],
}


def nested_schema(relation: Relation) -> str:
    """Return the Avro schema of a value in the nested envelope."""
    space = f"changelog.{avro_name(relation.name.schema)}.{avro_name(relation.name.table)}"
    row = {**json.loads(value_schema(relation)), "name": "Value", "namespace": space}
    fields: list[dict[str, Any]] = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", f"{space}.Value"], "default": None},
        {"name": "source", "type": _SOURCE},
        {"name": "transaction", "type": ["null", _TRANSACTION], "default": None},
        {"name": "op", "type": "string"},
        *({"name": name, **_MAYBE_LONG} for name in ("ts_ms", "ts_us", "ts_ns")),
    ]
    return _record(relation, Envelope.NESTED, {"name": "Envelope", "namespace": space}, fields)


def flat_schema(relation: Relation) -> str:
    """Return the Avro schema of a value in the flat envelope."""
    row = json.loads(value_schema(replace(relation, key=())))
    sides = [(side, field) for side in (BEFORE, AFTER) for field in row["fields"]]
    names = field_names(side + field["column"] for side, field in sides)
    fields: list[dict[str, Any]] = [
        {"name": "op", "type": "string"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "lsn", "type": "long"},
        *(
            {**field, "name": name, "side": side.rstrip("_")}
            for name, (side, field) in zip(names, sides, strict=True)
        ),
    ]
    head = {"name": row["name"], "namespace": row["namespace"]}
    return _record(relation, Envelope.FLAT, head, fields)


def labelled_schema(relation: Relation) -> str:
    """Return the Avro schema of a value in the labelled envelope."""
    row = json.loads(value_schema(relation))
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    types: dict[str, Any] = {"__lsn": "long", "__ts": moment, "__ingested": moment}
    types["__deleted"] = "boolean"
    labels = [{"name": name, "type": types.get(name, "string")} for name in LABELS]
    head = {"name": row["name"], "namespace": row["namespace"]}
    return _record(relation, Envelope.LABELLED, head, [*row["fields"], *labels])


def _record(
    relation: Relation, envelope: Envelope, head: dict[str, Any], fields: list[dict[str, Any]]
) -> str:
    is_full = relation.identity is ReplicaIdentity.FULL
    return json.dumps(
        {
            "type": "record",
            **head,
            "envelope": envelope.value,
            "identity": "full" if is_full else "key",
            "relation": list(relation.name),
            "key": list(relation.key),
            **({"generated": list(relation.generated)} if relation.generated else {}),
            "fields": fields,
        },
        ensure_ascii=False,
    )


def read_value_schema(text: str) -> LoggedSchema:
    """Read a value schema of any form: the columns of the row that it has or tells of.

    Raises CorruptRecordError: the schema is not one of ours.
    """
    try:
        raw = json.loads(text)
        envelope = raw.get("envelope")
        if envelope == Envelope.NESTED.value:
            text = json.dumps(raw["fields"][0]["type"][1])
        elif envelope == Envelope.FLAT.value:
            fields = [member for member in raw["fields"] if member.get("side") == AFTER.rstrip("_")]
            text = json.dumps({**raw, "fields": fields})
        elif envelope == Envelope.LABELLED.value:
            fields = [member for member in raw["fields"] if member["name"] not in LABELS]
            text = json.dumps({**raw, "fields": fields})
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CorruptRecordError(f"a schema is not one that capture writes: {error!r}") from error
    return read_schema(text)


def event_row_schema(text: str) -> str:
    """Return the part of a value's schema that says which row there is; of a row's schema all.

    It is a reader's schema: Avro passes over what it leaves out, such as the row before.

    Raises CorruptRecordError: the schema is not one of ours.
    """
    try:
        raw = json.loads(text)
        envelope = raw.get("envelope")
        if envelope is None:
            return text
        fields = {member["name"]: member for member in raw["fields"]}
        if envelope == Envelope.NESTED.value:
            kept = [fields["op"], {**fields["after"], "type": fields["before"]["type"]}]
        else:
            side = AFTER.rstrip("_")
            kept = [
                fields["op"],
                *(member for member in raw["fields"] if member.get("side") == side),
            ]
        head = {name: raw[name] for name in ("type", "name", "namespace")}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptRecordError(f"a schema is not one that capture writes: {error!r}") from error
    return json.dumps({**head, "fields": kept}, ensure_ascii=False)


class NestedRecords:
    """Encodes changes as Avro records in the nested envelope."""

    def __init__(self, relation: Relation, origin: EventOrigin, schema_id: int) -> None:
        self._relation = relation
        self._frame = frame(schema_id)
        self._rows = RowCodec(relation, key_schema_id=0, value_schema_id=0)
        self._who = b"".join(map(_string, (origin.version, CONNECTOR, origin.name)))
        self._database = _string(origin.database)
        self._where = b"".join(map(_string, relation.name))

    def encode(self, event: Event, stamp: Stamp) -> bytes:
        """Return the value of a record, framed; raises EncodeError."""
        before = event.before
        if before is None and event.op is Op.DELETE and event.key:
            before = key_as_row(self._relation, event.key)
        times = b"".join(
            _THERE + encode_long(time)
            for time in (stamp.seen_us // 1000, stamp.seen_us, stamp.seen_us * 1000)
        )
        return b"".join(
            (
                self._frame,
                self._row(before),
                self._row(event.after),
                self._source(event, stamp),
                NULL_BRANCH,  # no topic of transactions
                encode_bytes(event.op.value),
                times,
            )
        )

    def _row(self, row: Row | None) -> bytes:
        return NULL_BRANCH if row is None else _THERE + self._rows.encode_value(row)[FRAME_BYTES:]

    def _source(self, event: Event, stamp: Stamp) -> bytes:
        return b"".join(
            (
                self._who,
                encode_long(stamp.ts_us // 1000),
                encode_bytes(b"true" if is_snapshot(event) else b"false"),
                self._database,
                _THERE + _string(sequence_text(stamp)),
                self._where,
                NULL_BRANCH if stamp.xid is None else _THERE + encode_long(stamp.xid),
                _THERE + encode_long(stamp.lsn),
                NULL_BRANCH,
                _THERE + encode_long(stamp.ts_us),
                _THERE + encode_long(stamp.ts_us * 1000),
            )
        )


class FlatRecords:
    """Encodes changes as flat Avro records."""

    def __init__(self, relation: Relation, schema_id: int) -> None:
        self._relation = relation
        self._frame = frame(schema_id)
        # Without a key each column may be null, on both sides.
        rows = replace(relation, key=())
        self._rows = RowCodec(rows, key_schema_id=0, value_schema_id=0)
        self._nothing = self._rows.encode_value([None] * len(rows.columns))[FRAME_BYTES:]

    def encode(self, event: Event, stamp: Stamp) -> bytes:
        """Return the value of a record, framed; raises EncodeError."""
        before = event.before
        if before is None and event.op is Op.DELETE:
            before = key_as_row(self._relation, event.key)
        return b"".join(
            (
                self._frame,
                encode_bytes(event.op.value),
                encode_long(stamp.ts_us),
                encode_long(stamp.lsn),
                self._side(before),
                self._side(event.after),
            )
        )

    def _side(self, row: Row | None) -> bytes:
        return self._nothing if row is None else self._rows.encode_value(row)[FRAME_BYTES:]


class LabelledRecords:
    """Encodes changes as Avro records of the row with labels."""

    def __init__(self, relation: Relation, schema_id: int) -> None:
        self._relation = relation
        self._frame = frame(schema_id)
        self._rows = RowCodec(relation, key_schema_id=0, value_schema_id=0)
        self._where = b"".join(map(_string, relation.name))

    def encode(self, event: Event, stamp: Stamp) -> bytes:
        """Return the value of a record, framed; raises EncodeError."""
        row = labelled_row(self._relation, event)
        moments = map(encode_long, (stamp.lsn, stamp.ts_us, stamp.seen_us))
        return b"".join(
            (
                self._frame,
                self._rows.encode_value(row)[FRAME_BYTES:],
                encode_bytes(event.op.value),
                self._where,
                *moments,
                b"\x01" if event.op is Op.DELETE else b"\x00",
            )
        )


def _string(text: str) -> bytes:
    return encode_bytes(text.encode("utf-8"))
