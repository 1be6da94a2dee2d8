"""Settings, clock, the place of a record, and faults that cross the border to Spark.

Values come in and go out. All of replay may import it.
"""
