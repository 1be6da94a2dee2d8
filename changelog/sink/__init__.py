"""Kafka out: schema registry, topics, producer, frontier, resume."""
