"""The independent check: confluent-kafka, fastavro and DuckDB; nothing of replay."""
