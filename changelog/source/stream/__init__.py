"""The stream: slot, replication connection, pgoutput, changes put together.

A slot and an LSN come in, changes in the order of their commits go out.
"""
