"""Where a view is served from: one protocol, one module per sink."""
