"""Capture without Kafka: changes as lines of JSON, to standard output or to a file.

Settings come in, lines go out. The command imports it.
"""
