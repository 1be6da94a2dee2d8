"""What is on the topic: pure values that capture writes and replay reads; no I/O here."""
