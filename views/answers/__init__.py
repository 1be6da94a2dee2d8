"""What the sinks of views serve, compared with PostgreSQL's own answers to their queries."""
