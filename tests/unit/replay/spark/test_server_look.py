"""Which Spark Connect servers are taken, by their version."""

import pyspark
import pytest

from replay.spark.server_look import lacking_version


@pytest.mark.parametrize(
    "there", [pyspark.__version__, "4.0.0", "4.1.2", "4.3.0", "4.12.0", "4.2.0-amzn-1"]
)
def test_a_server_of_any_minor_version_is_taken(there):
    assert lacking_version(there) == []


@pytest.mark.parametrize("there", ["3.5.5", "5.0.0", "40.1.0", "x", ""])
def test_a_server_of_another_major_version_is_refused_with_both(there):
    (told,) = lacking_version(there)
    assert told == f"Spark 4, of any minor version; it is {there}"
