"""The demo: real flights, captured while a writer works, then three verified views."""
