"""Clients of Kafka, questions to the brokers, scans of topics, and what errors of brokers mean.

Connections come in; records, facts about topics and errors of ours with a hint go out. Everybody
above this package asks Kafka through it, but the verifier, which reads by itself.
"""
