"""What is on the topic: pure values that capture writes and replay reads; no input or output here."""
