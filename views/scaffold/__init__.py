"""`changelog init`: write a project that works."""
