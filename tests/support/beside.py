"""Commands that run beside a test, as a person's would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HERE = {**os.environ, "PYTHONPATH": "."}
"""Variables with which modules of the tests are found."""


@contextmanager
def beside(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a module, of which standard error can be read; kill it at the end."""
    line = [sys.executable, "-m", *words]
    with subprocess.Popen(line, env=HERE, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()
