"""Tests of `views.operate`."""
