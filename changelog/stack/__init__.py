"""The embedded servers: real PostgreSQL, Kafka, registry, OpenSearch and Valkey without containers."""
