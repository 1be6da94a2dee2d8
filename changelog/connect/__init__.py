"""Connectors by REST, as Kafka Connect's clients ask for them: topics to PostgreSQL.

Requests and topics come in, rows go out. The command imports it.
"""
