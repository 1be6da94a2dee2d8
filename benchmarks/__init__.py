"""Measurements: `make bench-…`. Each prints plain lines, and one JSON object as its last line."""
