"""Sinks, which serve views: one contract, and a folder for each kind.

Rows come in; a generation that is sealed, served or dropped goes out.

These modules choose the type of a view's column in each kind of sink:

| sink | module |
|---|---|
| PostgreSQL | `views.sinks.postgres.column_types` |
| search index | `views.sinks.search.column_types` |
| Iceberg | `views.sinks.iceberg.column_types` |
| topic, Avro | `views.sinks.topic.schema` |
| cache, JSON of topics | `views.sinks.rendering`: each value as JSON or text |
| Delta | none: its tables have Spark's types |
"""
