"""Locks that hold across machines: leases on a topic of Kafka.

Names of locks come in, and go out as held or as lost; the topic's order decides who has one, and
the brokers' clock when it ends.
"""
