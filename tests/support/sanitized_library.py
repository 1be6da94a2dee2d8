"""Lets another library be opened than that of the package: `-p` of pytest, or an import."""

import os
from pathlib import Path

from changelog.native import headers

headers.FOLDER = Path(os.environ["CHANGELOG_TESTS_LIBRARY"])
