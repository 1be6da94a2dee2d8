"""What comparing a column means in PostgreSQL, and how a view's query comes to mean the same."""
