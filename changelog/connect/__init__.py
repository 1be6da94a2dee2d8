"""Connectors with Kafka Connect's REST interface: sinks to PostgreSQL, captures, rebuilds.

Requests and topics come in, rows go out. The command imports it.
"""
