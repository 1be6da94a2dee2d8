"""Parts of replay that need neither servers nor Spark."""
