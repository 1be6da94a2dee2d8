"""Tests of `views.runs`."""
