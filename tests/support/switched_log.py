"""A log whose capture is killed, and switched between transactions and none."""

import pytest

from tests.support.capture_command import CrashingCapture
from tests.support.frontiers import frontiers_of, inexact
from tests.support.log_readers import by_model, by_tasks, by_verifier
from tests.support.native_ways import take

ONCE, ATLEAST = "exactly_once = true\n", "exactly_once = false\n"


def changes(first, last):
    return [f"UPDATE notes SET text = 'change {n}' WHERE id = {n}" for n in range(first, last)]


class SwitchedLog:
    """A capture whose settings change, and what lies on its topic."""

    def __init__(self, capture: CrashingCapture, settings: str):
        self.capture = capture
        self.base = (capture.folder / "changelog.toml").read_text()
        self.topic = f"{capture.prefix}.notes"
        self.use(settings)
        capture.make_notes(200)
        capture.finish()

    def use(self, settings):
        (self.capture.folder / "changelog.toml").write_text(self.base + settings)

    def crash(self, point):
        """Leave records behind the last frontier, and write one that has them before its ends."""
        self.capture.sql(*changes(1, 41))
        self.capture.crash(point, defect="deliver_each")
        self.capture.crash("frontier written:1", defect="one_by_one")
        self.capture.sql(*changes(41, 81), "DELETE FROM notes WHERE id > 190")

    @property
    def key_id(self):
        found = self.capture.reader.messages(self.topic, self.capture.frontier().ends[self.topic])
        return next(int.from_bytes(message.key()[1:5], "big") for message in found)

    def check(self):
        """Each frontier is exact, and each reader gives its rows; of the last, Python's too."""
        self.capture.check()
        assert inexact(self.capture) == []
        key_id = self.key_id
        for frontier in frontiers_of(self.capture):
            expected = by_model(self.capture, frontier, self.topic)
            assert by_tasks(self.capture, frontier, self.topic, key_id) == expected
            assert by_verifier(self.capture, frontier, self.topic, key_id) == expected
        with pytest.MonkeyPatch.context() as patch:
            take("plain", patch)
            for frontier in frontiers_of(self.capture)[-2:]:
                expected = by_model(self.capture, frontier, self.topic)
                assert by_tasks(self.capture, frontier, self.topic, key_id) == expected
