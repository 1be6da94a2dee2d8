"""The embedded servers, without containers: PostgreSQL, Kafka, registry, OpenSearch, Valkey."""
