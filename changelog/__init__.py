"""Keeps the changes of a PostgreSQL database as compacted Kafka topics.

A database comes in, and a log goes out from which every state can be built again. `contract` is
the floor that replay and views stand on too; what else is here, only commands and tests import.
"""
