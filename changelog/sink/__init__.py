"""Kafka out: topics, registry, producer, frontiers, and what the log already holds.

Records come in, acknowledged offsets go out. Capture may import it.
"""
