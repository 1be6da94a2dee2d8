"""Locks that hold across machines: leases on a topic of Kafka.

Order on the topic decides who has one, and the brokers' clock when it ends.
"""
