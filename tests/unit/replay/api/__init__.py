"""Tests: replay.api."""
