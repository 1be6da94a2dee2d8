"""Rebuilds the state of tables from the log, with Spark.

Topics and a frontier come in, a DataFrame for each table goes out. Views may import it, the
verifier may not.
"""
