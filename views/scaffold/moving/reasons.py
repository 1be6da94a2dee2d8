"""Reasons of keys of Debezium's source and of JDBC sinks that translate into no setting."""

from __future__ import annotations

from views.scaffold.moving.account import Outcome
from views.scaffold.moving.connector import Reason

_SAME, _LEFT = Outcome.SAME, Outcome.LEFT
_OURS = "nothing to do: batches and queues are bounded by memory here"
_TYPES = "docs/records.md has the form of each type; a view's query may cast"
_AGAIN = "`changelog resnapshot` copies tables once more; there are no signals"


SOURCE = (
    Reason(r"tasks\.max", _SAME, "a capture is one task"),
    Reason(r"plugin\.name", _SAME, "pgoutput, which every PostgreSQL has"),
    Reason(r"snapshot\.mode", _SAME, "a lost slot leads to a new copy by itself", "when_needed"),
    Reason(r"snapshot\.mode", _LEFT, "the tables are copied at the first start; `changelog "
           "resnapshot` does it once more, `capture --until now` ends after it"),
    Reason(r"snapshot\.locking\.mode", _SAME, "no lock is taken", "none"),
    Reason(r"snapshot\.include\.collection\.list", _LEFT, "each table is copied: a log without its "
           "rows cannot be rebuilt"),
    Reason(r"snapshot\.select\.statement\.overrides.*", _LEFT,
           "[capture.where] keeps rows out of the copy and of the stream"),
    Reason(r"snapshot\.max\.threads", _LEFT, "[capture] snapshot_workers"),
    Reason(r"snapshot\..*|incremental\.snapshot\..*", _LEFT, "a copy is made in chunks beside the "
           "stream, without a setting"),
    Reason(r"tombstones\.on\.delete", _SAME, "a delete is a tombstone", "true"),
    Reason(r"tombstones\.on\.delete", _LEFT, "a delete is always a tombstone: compaction needs it"),
    Reason(r"decimal\.handling\.mode", _SAME, "a numeric(p,s) is Avro's decimal", "precise"),
    Reason(r"(decimal|time\.precision|interval|hstore|binary|money)\..*", _LEFT, _TYPES),
    Reason(r"message\.key\.columns", _LEFT, "the key of a record is the primary key; of a table "
           "without one, [capture.key_index] names a unique index"),
    Reason(r"publication\.autocreate\.mode", _LEFT, "the publication has the captured tables"),
    Reason(r"slot\.failover", _LEFT, "[capture] failover_slot = true (PostgreSQL 17)", "true"),
    Reason(r"slot\.(failover|drop\.on\.stop)", _SAME, "it is so without a setting", "false"),
    Reason(r"slot\..*", _LEFT, "the slot stays until `changelog teardown`; its connection is "
           "opened again for as long as it takes"),
    Reason(r"column\.include\.list", _LEFT, "all columns are captured but those of [capture] "
           "drop_columns: write the others there"),
    Reason(r"column\.truncate\..*", _LEFT, "texts are captured whole: cut them in a view, or leave "
           "the column out by [capture] drop_columns"),
    Reason(r"(column|datatype)\.propagate\..*", _SAME, "each field says its column and pg_type"),
    Reason(r"skipped\.operations", _SAME, "truncates are captured too", "none"),
    Reason(r"skipped\.operations", _LEFT, "[capture] operations names those to capture; a log "
           "without one of them cannot be rebuilt"),
    Reason(r"post\.processors|reselector\..*|unavailable\.value\.placeholder", _SAME,
           "capture itself completes values that the stream leaves out"),
    Reason(r"provide\.transaction\.metadata|transaction\..*", _LEFT,
           "frontiers tell which transactions the log holds whole (docs/records.md)"),
    Reason(r"(signal|notification|incremental)\..*", _LEFT, _AGAIN),
    Reason(r"topic\.heartbeat\.prefix", _LEFT, "there is no topic of heartbeats"),
    Reason(r"topic\.creation\.(enable|default\.cleanup\.policy)", _SAME, "topics are made, "
           "compacted", "true|compact"),
    Reason(r"topic\..*", _LEFT, "[capture.topic] has settings of new topics; a topic is named by "
           "its table, without public"),
    Reason(r"(max\.(batch|queue)|poll\.interval|query\.fetch|max\.queue).*", _LEFT, _OURS),
    Reason(r"(errors|event|retriable|connect\.backoff).*", _LEFT, "capture waits for servers that "
           "are away; [capture] on_error and on_incompatible say what a table's fault does"),
    Reason(r"(schema|field)\.name\.adjustment\.mode", _LEFT, "names that Avro does not take are "
           "written otherwise, and the field's attribute `column` has PostgreSQL's"),
    Reason(r"database\.tcpKeepAlive", _SAME, "connections are kept alive", "true"),
    Reason(r"(key|value)\.converter\.schemas\.enable", _SAME, "a record names its schema", "false"),
    Reason(r"(key|value)\.converter.*|header\.converter.*", _LEFT, "[capture] output_format is "
           "avro (with a registry) or json; headers are docs/records.md's"),
    Reason(r"converters|.*\.type", _LEFT, "values are converted in a view's query"),
    Reason(r"flush\.lsn\.source|lsn\.flush\.mode", _SAME, "PostgreSQL forgets what the log holds "
           "safely", "true|connector"),
    Reason(r"read\.only", _LEFT, "[postgres] primary, where the source is a standby"),
    Reason(r"name", _SAME, "the project's folder is its name"),
    Reason(r"offset\..*", _SAME, "the log itself tells where it ends"),
    Reason(r"(debezium|quarkus|mapper)\..*", _LEFT, "of Debezium Server: records go to Kafka"),
    # Below a transform that unwraps rows:
    Reason(r"unwrap\.drop\.tombstones", _SAME, "a delete is a tombstone", "false"),
    Reason(r"unwrap\.delete\.(tombstone\.)?handling\.(mode|type)", _SAME, "a delete is a tombstone",
           "none|tombstone"),
    Reason(r"unwrap\.(drop\.tombstones|delete\..*)", _LEFT, "a delete is a tombstone; [capture] "
           "envelope = labelled adds __deleted"),
    Reason(r"unwrap\.add\..*|unwrap\.operation\.header", _LEFT, "headers `position`, `op`, `ts` "
           "are on each record (docs/records.md); [capture] envelope = labelled has fields"),
    Reason(r"unwrap\..*", _LEFT, "a view's query chooses and names fields"),
)  # fmt: skip
"""Of Debezium's source; the first that fits counts."""

SINK = (
    Reason(r"tasks\.max", _LEFT, "nothing to do: a view is written by as many tasks as there are"),
    Reason(r"name", _SAME, "the view's name is its table's"),
    Reason(r"insert\.mode", _LEFT, "rows are written by key: a row that the table lacks is "
           "inserted; restrict the view by WHERE"),
    Reason(r"delete\.enabled", _SAME, "rows that are deleted go from the table", "true"),
    Reason(r"delete\.enabled", _LEFT, "rows that are deleted at the source go from the table too: "
           "`-- history: scd2` keeps them (docs/history.md)"),
    Reason(r"truncate\.enabled", _SAME, "a TRUNCATE empties the table", "true"),
    Reason(r"truncate\.enabled", _LEFT, "a TRUNCATE at the source empties the table too"),
    Reason(r"(primary\.key|pk)\.mode", _SAME, "the key of the table", "record_key"),
    Reason(r"(primary\.key|pk)\.mode", _LEFT, "a view has a key: see its header"),
    Reason(r"schema\.evolution|auto\.evolve", _SAME, "the table follows the view's columns, "
           "dropped ones too", "basic|true"),
    Reason(r"auto\.create", _SAME, "the table is made where it is missing", "true"),
    Reason(r"auto\.create", _LEFT, "the table is made: schema.evolution = basic"),
    Reason(r"auto\.evolve", _LEFT, "with auto_create = false the table is never altered", "false"),
    Reason(r"(batch|max|retry|connection|flush|errors|poll)\..*", _LEFT, "nothing to do: a view is "
           "one transaction, and servers are waited for"),
    Reason(r"(database|db|use)\.time.*|use\.time\.zone", _SAME, "moments are in UTC", "UTC"),
    Reason(r"dialect\..*|hibernate\..*|quote\..*|table\.types", _LEFT, "nothing to do: the sink "
           "knows PostgreSQL"),
    Reason(r"(field\.include|column\.include|fields\.whitelist).*|field\..*", _LEFT, "write the "
           "columns in the view's query, in place of *"),
    Reason(r"transforms\.\w+\.type", _SAME, "a view's rows are the table's", ".*NewRecordState"),
    Reason(r"transforms|transforms\..*", _LEFT, "write it in the view's query; what "
           "unwraps rows is not needed"),
    Reason(r"(key|value|header)\.converter.*|consumer\.override\..*", _LEFT, "nothing to do: views "
           "read the log of this project"),
)  # fmt: skip
"""Of JDBC sinks."""
