"""What libraries throw becomes one line with advice and without secrets."""

from pathlib import Path

import pytest

from changelog.contract.base.errors import SinkError
from views.base.failure import analysed, explained

SPARK = """An error occurred while calling o1.save.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.X(Y.scala:1)
Caused by: java.io.IOException: No space left on device
\tat sun.nio.ch
"""


def test_our_own_errors_pass() -> None:
    error = SinkError("full", hint="empty it")
    assert explained(error, "x") is error
    assert analysed(error, "v", Path("v.sql")) is error


def test_a_full_disk_is_named_wherever_it_is_said() -> None:
    wrapped = RuntimeError("job failed")
    wrapped.__cause__ = OSError(28, "No space left on device")
    for error in (RuntimeError(SPARK), wrapped):
        found = explained(error, 'rebuild of view "v"')
        assert str(found).startswith('rebuild of view "v": no space left on the disk | hint: free')
        assert found.exit_code == 1


def test_the_innermost_cause_is_told_on_one_line() -> None:
    text = SPARK.replace("No space left on device", "password=hunter2 is wrong")
    found = str(explained(RuntimeError(text), "it"))
    assert "\n" not in found
    assert "is wrong" in found
    assert "hunter2" not in found


def test_an_error_without_text_still_says_its_kind() -> None:
    assert "RuntimeError: no message" in str(explained(RuntimeError(), "it"))


def test_what_spark_does_not_accept_is_the_views_fault() -> None:
    found = analysed(RuntimeError("[UNRESOLVED_COLUMN] a\n== SQL =="), "v", Path("v.sql"))
    assert found.exit_code == 2
    assert str(found) == 'v.sql: Spark does not accept view "v": a'


def test_a_function_that_raises_shows_its_line_and_the_kind_of_error(tmp_path) -> None:
    path = tmp_path / "v.py"
    text = "def v(things):\n    rows = {}\n    return rows['missing']\n"
    namespace: dict = {}
    exec(compile(text, str(path), "exec"), namespace)  # noqa: S102 - as a view's file is loaded
    with pytest.raises(KeyError) as raised:
        namespace["v"](None)
    assert str(analysed(raised.value, "v", path)) == "v.py:3: view \"v\" fails: KeyError: 'missing'"
