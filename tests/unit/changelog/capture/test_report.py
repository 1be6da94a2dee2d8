"""The line with which capture ends."""

from changelog.capture.state.report import CaptureReport
from changelog.contract.base.lsn import Lsn


def test_the_log_is_complete_to_a_frontier_alone():
    report = CaptureReport()
    assert report.summary().endswith("; no frontier was written")
    report.lsn = Lsn(0x20)
    assert report.summary().endswith("the log is complete to 0/20")
