"""Runs `changelog publish` and kills it at a named moment; seeds a defect when asked to.

Usage: python -m tests.support.crashing_publish [--kill MOMENT] [--defect DEFECT]
       -- OPTIONS OF changelog publish

Moments are `produced:N` (the brokers have acknowledged N records), `written` (all of them, and
nothing is committed), `committing` (the brokers are asked to) and `committed`. The defect `at_once`
writes without a transaction; `believe` takes records of killed runs for what the topic holds.
"""

import argparse
import os
import signal
import sys
from functools import partial
from typing import Any

from changelog.cli import main
from changelog.kafka.scan import scan
from changelog.lines.ask import bounds_of
from changelog.publish import publish
from changelog.sink.producer import LogProducer

_OPEN = LogProducer.open
_FLUSH_S = 60


def stand_at_once(
    kafka: Any, *, on_wait: Any, transactional_id: str, transaction_s: int
) -> LogProducer:
    """Open a producer whose records stand as they are written; also those before an error."""
    made = _OPEN(kafka, on_wait=on_wait)
    drop = made.close

    def close() -> None:
        made.flush(_FLUSH_S)
        drop()

    made.close = close  # type: ignore[method-assign]
    return made


def believe() -> None:
    """Read what the topic holds without regard to transactions."""
    publish.bounds_of = partial(bounds_of, committed=False)  # type: ignore[attr-defined]
    publish.scan = partial(scan, committed=False)  # type: ignore[attr-defined]


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(moment: str, count: int) -> None:
    """Let the producer end the process."""
    produce, commit, transact = LogProducer.produce, LogProducer.commit, LogProducer._transact

    def produce_then_die(self: LogProducer, *record: Any) -> None:
        produce(self, *record)
        if self.records == count:
            self.flush(_FLUSH_S)
            _kill()

    def die_at_commit(self: LogProducer) -> None:
        if moment == "written":
            self.flush()
            _kill()
        commit(self)
        _kill()

    def die_committing(self: LogProducer, call: Any, action: str, deadline_s: float | None) -> None:
        if self._opened_at is not None:
            call(0.001)  # it goes on in the client's own thread
            _kill()
        transact(self, call, action, deadline_s)

    match moment:
        case "produced":
            LogProducer.produce = produce_then_die  # type: ignore[method-assign,assignment]
        case "written" | "committed":
            LogProducer.commit = die_at_commit  # type: ignore[method-assign]
        case "committing":
            LogProducer._transact = die_committing  # type: ignore[method-assign]
        case _:
            assert not moment, moment


if __name__ == "__main__":
    own = sys.argv[1 : sys.argv.index("--")]
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", default="")
    parser.add_argument("--defect", choices=["", "at_once", "believe"], default="")
    asked = parser.parse_args(own)
    name, _, number = asked.kill.partition(":")
    kill_at(name, int(number or 0))
    if asked.defect == "at_once":
        LogProducer.open = stand_at_once  # type: ignore[method-assign,assignment]
    if asked.defect == "believe":
        believe()
    sys.argv = ["changelog", "publish", *sys.argv[len(own) + 2 :]]
    main()
