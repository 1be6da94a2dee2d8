"""What brokers mean by what they say: one table for all who ask them, and why none answers.

Errors of confluent-kafka come in, errors of ours with an exit code and a hint go out.
"""
