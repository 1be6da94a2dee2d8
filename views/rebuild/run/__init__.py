"""The steps of one run: rows, what goes forward, proofs, and the move of readers."""

from __future__ import annotations
