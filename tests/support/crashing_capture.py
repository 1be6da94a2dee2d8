"""Runs capture and ends it by SIGKILL at a named point; seeds a defect when asked to.

Usage: python -m tests.support.crashing_capture PROJECT [--kill POINT:TIMES] [--defect NAME]
       [--until now|LSN]
"""

import argparse
import os
import signal
from collections import Counter
from pathlib import Path

from changelog.sink.producer import LogProducer
from rich.console import Console

from changelog.capture import cut, seed, session, writer
from changelog.capture.report import CaptureReport
from changelog.capture.run import CaptureRun, until_lsn
from changelog.config import load_project
from changelog.edge import set_up_logging, stop_on_signals


def forget_to_skip():
    """After a crash, write again what is on the log already."""
    session.RecordWriter._on_log = lambda *_: False


def forget_since():
    """After a snapshot that was cut off, keep what it left behind alive."""
    original = cut.Cutter.cut

    def without_since(self, lsn, *, since, ts_us):
        return original(self, lsn, since={}, ts_us=ts_us)

    cut.Cutter.cut = without_since
    seed.bury = lambda *_, **__: 0


def forget_to_flush():
    """Take the end offsets while records are still in the queue, and lose those."""
    LogProducer.flush = lambda *_, **__: None


def acknowledge_early():
    """Acknowledge each transaction when it was read, before any frontier."""
    from changelog.capture import streaming

    original = streaming.StreamLoop._take

    def take(self, event):
        original(self, event)
        if isinstance(event, streaming.Committed):
            self._stream.acknowledge(event.end_lsn)

    streaming.StreamLoop._take = take


def null_for_toast():
    """Write a null for a TOAST value that the stream left out."""

    def completed(self, relation, key, row):
        return [None if field is writer.UNCHANGED else field for field in row]

    writer.RecordWriter._completed = completed


DEFECTS = {
    function.__name__: function
    for function in (
        forget_to_skip,
        forget_since,
        forget_to_flush,
        acknowledge_early,
        null_for_toast,
    )
}


def main():
    """Run capture as the command does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("project", type=Path)
    parser.add_argument("--kill", default="")
    parser.add_argument("--defect", choices=sorted(DEFECTS))
    parser.add_argument("--until", default=None)
    arguments = parser.parse_args()
    set_up_logging()
    if arguments.defect:
        DEFECTS[arguments.defect]()
    point, _, times = arguments.kill.partition(":")
    seen: Counter[str] = Counter()

    def reach(name):
        seen[name] += 1
        if name == point and seen[name] >= int(times or 1):
            os.kill(os.getpid(), signal.SIGKILL)

    settings = load_project(arguments.project)
    run = CaptureRun(
        settings,
        report=CaptureReport(),
        stop=stop_on_signals(),
        console=Console(stderr=True),
        reach=reach,
    )
    run.run(until_lsn(settings, arguments.until))


if __name__ == "__main__":
    main()
