"""Topics and a frontier to state, in Spark."""
