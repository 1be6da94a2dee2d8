"""PostgreSQL changes to primary-keyed Avro records on log-compacted Kafka topics."""
