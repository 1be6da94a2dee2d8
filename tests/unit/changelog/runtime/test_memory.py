"""A follower does not load pandas, which pyarrow would import by itself."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from changelog.runtime.process.memory import keep_little
if sys.argv[1] == "little":
    keep_little()
import pyarrow as pa
import pyarrow.compute
numbers = pa.table({"n": [1, None], "t": pa.array(["a", "b"])})
print("pandas" in sys.modules, pa.compute.sum(numbers["n"]).as_py())
import pandas as pd
print(numbers.to_pandas()["t"].tolist(), pa.array(pd.Series([1.0, None])).null_count)
"""


def run(way: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, way], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_arrow_leaves_pandas_alone_until_somebody_wants_it() -> None:
    assert run("little") == ["False 1", "['a', 'b'] 1"]


def test_twin_without_it_arrow_imports_pandas() -> None:
    assert run("as it is")[0] == "True 1"
