"""Tests: views.api."""
