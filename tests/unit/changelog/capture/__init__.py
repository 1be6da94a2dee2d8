"""Tests: capture without servers."""
