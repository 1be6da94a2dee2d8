"""What counts as a store that does not answer; what real clients say is in test_sink_faults."""

import pytest

from replay.spark.object_store import unanswered

REFUSED = """Generic S3 error
  \x1b[31m↳\x1b[0m Error performing GET http://127.0.0.1:9/lake after 10 retries - HTTP error
   \x1b[31m↳\x1b[0m client error (Connect)
    \x1b[31m↳\x1b[0m Connection refused (os error 111)"""
SPARK = """org.apache.hadoop.fs.s3a.AWSClientIOException: getFileStatus on s3://lake/views
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)"""


@pytest.mark.parametrize("text", [REFUSED, SPARK])
def test_why_is_said_in_one_line(text):
    assert (unanswered(text) or "").startswith("Connection refused")


@pytest.mark.parametrize(
    "text",
    [
        "Generic S3 error\n  ↳ Server returned non-2xx status code: 403 <Code>AccessDenied</Code>",
        "No space left on device",
        "java.net.ConnectException: Connection refused",  # of a broker that the query reads
        "org.apache.hadoop.fs.s3a.AWSBadRequestException: on s3://lake: 400",
        "",
    ],
)
def test_other_errors_are_no_silence(text):
    assert unanswered(text) is None
