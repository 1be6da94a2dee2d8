"""Records to rows: Avro, JSON, envelopes.

Survivors and their schemas come in, rows go out.
"""
