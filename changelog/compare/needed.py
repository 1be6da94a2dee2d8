"""Modules that some kinds of copies need in addition to the extra [verify]."""

from __future__ import annotations

from importlib.util import find_spec

from changelog.runtime.installed.extras import MissingExtraError

_REQUIREMENTS = {"deltalake": "deltalake>=1.4,<2", "redis": "redis>=7"}


def needed(module: str, kind: str) -> None:
    """Check that a module is installed, without importing it.

    Raises MissingExtraError: it is not.
    """
    if find_spec(module) is None:
        raise MissingExtraError(
            f"a copy of the kind {kind} needs the module {module}, which is not installed",
            hint=f"pip install '{_REQUIREMENTS[module]}'; the extra [spark] has it too",
        )
