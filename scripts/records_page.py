"""The page of the records on the log, made of the contract by an example."""

from __future__ import annotations

import json

from changelog.contract.base import headers
from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log import topic
from changelog.contract.log.frontier import Frontier, LastCommit
from changelog.contract.rows import types
from changelog.contract.rows.relation import Column, Relation, TableName
from changelog.contract.rows.schema import key_schema, value_schema
from changelog.contract.rows.types import column_type


def records() -> str:
    """Return `docs/records.md`: keys, values and headers of each topic, by an example."""
    table = TableName("public", "orders")
    columns = (
        Column("id", column_type("int4", "integer")),
        Column("customer", column_type("text", "text")),
        Column("total", column_type("numeric", "numeric(10,2)")),
    )
    relation = Relation(oid=1, name=table, columns=columns, key=("id",))
    position = Position(1, Lsn.parse("0/16B3748"), 2)
    frontier = Frontier(
        slot="shop", epoch=1, lsn=Lsn.parse("0/16B3790"), ts_us=1_700_000_000_000_000,
        system_id="7300000000000000000", cluster_id="abc", tables={"orders": table},
        topic_ids={"orders": "def"}, ends={"orders": (3, 4)}, key_ids={"orders": 1},
        commit=LastCommit(Lsn.parse("0/16B3758"), 1_700_000_000_000_000),
    )  # fmt: skip
    names = "\n".join(
        f"| `{name('shop')}` | {what} |"
        for name, what in (
            (lambda prefix: topic.topic_name(table, prefix), "a table: one topic each"),
            (topic.frontier_topic, "frontiers, by slot; progress of copies beside them"),
            (topic.schema_topic, "schemas, where values are JSON and no registry is"),
            (topic.messages_topic, "messages of `pg_logical_emit_message`, on request"),
            (topic.sequences_topic, "where sequences stand, on request"),
            (topic.ddl_topic, "schema changes, on request"),
        )
    )
    ops = ", ".join(f"`{each.value.decode()}` {each.name.lower()}" for each in Op)
    order = (
        "epoch, commit LSN and number in the transaction; as bytes they sort as a key's records "
        f"do. `{position}` is `{position.to_bytes().hex()}`"
    )
    mapped = (types.__doc__ or "").partition("\n\n")[2]
    return f"""# Records on the log

What capture writes, for whoever reads the topics without this program.

This page is written by `make pages` from the contract of the code (`changelog/contract`).

## Topics

Under `topic_prefix = "shop"`, of a table `orders` in the schema `public`; of another schema its
name comes before the table's.

| topic | holds |
|---|---|
{names}

## A row

The key is the primary key, the value the whole row; a null value is a tombstone: the row is gone.
Both are Avro in Confluent's framing: a zero byte, the id of the schema in four bytes, the body.
Subjects are `TOPIC-key` and `TOPIC-value`. Fields have attributes that other readers skip: `column`
is PostgreSQL's name, `pg_type` its type.

```json
{_shown(key_schema(relation))}
```

```json
{_shown(value_schema(relation))}
```

## Headers

| header | bytes | says |
|---|---|---|
| `{headers.POSITION}` | {len(position.to_bytes())} | {order} |
| `{headers.OP}` | 1 | {ops} |
| `{headers.TS}` | {len(headers.encode_ts(0))} | commit time, microseconds since 1970, big-endian |

Of two records with one key the one with the higher position counts, and of two with the same
position the later one: after a crash capture may send records again. Records that a frontier calls
dead count for nothing: those before the offsets of `alive_from` in their topic, and those whose
position is before its `since`. So a record of somebody else's is dead, whatever its position, once
its table has been copied again.

## A frontier

JSON, under the name of the slot: all records of transactions that commit before `lsn` lie before
`ends`, and no record of a later one does.

```json
{_shown(frontier.to_json())}
```

## Types

{mapped}"""


def _shown(text: str) -> str:
    return json.dumps(json.loads(text), indent=1, ensure_ascii=False)
