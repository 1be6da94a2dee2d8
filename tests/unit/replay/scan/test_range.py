"""Where a range of a partition ends, and what makes it unreadable; without a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from changelog.native.records import News
from replay.base.task_faults import TaskFault, marked
from replay.scan.range import PartitionRange, read_to_end


class Client:
    """Tells one piece of news after the other, then nothing."""

    def __init__(self, *news):
        self._news = list(news)

    def poll(self):
        return self._news.pop(0) if self._news else News(0)

    def read(self, stall_s):
        read_to_end(self.poll, "t", PartitionRange(3, 0, 4), stall_s)
        return not self._news


AWAY = News(0, error=KafkaError._TRANSPORT, message="away")


@pytest.mark.parametrize(
    "news",
    [
        [News(2), News(2, is_over=True)],
        [News(1), News(0, is_over=True)],  # a gap at the end, and more behind it
        [News(1), News(0, ends_at=7)],  # a gap at the end, and nothing behind it
        [News(1, ends_at=4)],
        [News(0, ends_at=2), News(2), News(0), News(1, is_over=True)],  # the end of before
        [AWAY, News(4, is_over=True)],  # the client tries again
    ],
)
def test_a_range_is_read_to_its_end(news):
    assert Client(*news).read(stall_s=60), "something was left"


@pytest.mark.parametrize(
    ("news", "fault", "said"),
    [
        ([News(1)], TaskFault.SILENT, "nothing came"),
        ([News(1), AWAY], TaskFault.SILENT, "nothing came"),
        ([News(1), News(0, ends_at=2)], TaskFault.LOST, "ends before offset 4"),
        ([News(0, error=KafkaError._AUTO_OFFSET_RESET)], TaskFault.LOST, "not on the log"),
        ([News(0, error=KafkaError.UNKNOWN_TOPIC_OR_PART)], TaskFault.LOST, "not on the log"),
        (
            [News(0, error=KafkaError.TOPIC_AUTHORIZATION_FAILED)],
            TaskFault.REFUSED,
            "cannot be read",
        ),
        (
            [News(0, error=KafkaError._FATAL, message="gone", is_fatal=True)],
            TaskFault.REFUSED,
            "gone",
        ),
    ],
)
def test_a_range_that_cannot_be_read_is_loud(news, fault, said):
    with pytest.raises(Exception, match="partition 3") as failed:
        Client(*news).read(stall_s=0)
    found = marked(str(failed.value))
    assert found is not None
    assert found[0] is fault
    assert said in found[1]
