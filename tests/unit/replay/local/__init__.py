"""Tests: replay.local."""
