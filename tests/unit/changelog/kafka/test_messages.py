"""How many messages of a consumer are held at once, whatever it has unpacked."""

import pytest

from changelog.kafka import messages
from changelog.kafka.messages import MessageBatches


class Large:
    """A consumer whose records are large; it gives what it is asked for."""

    def __init__(self, sizes):
        self._left, self.given, self.waits = list(sizes), [], []

    def consume(self, count, timeout):
        self.waits.append(timeout)
        taken, self._left = self._left[:count], self._left[count:]
        self.given.append(len(taken))
        return [Sized(each) for each in taken]


class Sized:
    def __init__(self, size):
        self._size = size

    def __len__(self):
        return self._size

    def key(self):
        return None


def test_a_batch_of_large_records_is_short():
    consumer = Large([1 << 20] * 3000)
    batches = MessageBatches(consumer, 3000)  # type: ignore[arg-type]
    found = batches.next(0.2)
    assert sum(map(len, found)) <= messages.BATCH_BYTES + (1 << 20)
    assert max(consumer.given) == 1


def test_a_batch_of_small_records_has_as_many_as_are_asked_for():
    consumer = Large([100] * 5000)
    batches = MessageBatches(consumer, 3000)  # type: ignore[arg-type]
    assert [len(batches.next(0.2)) for _ in range(3)] == [3000, 2000, 0]
    assert len(consumer.given) < 120


@pytest.mark.parametrize(("lingers", "waits"), [(True, [True, True]), (False, [True, False])])
def test_only_one_that_lingers_waits_for_more_than_the_first(lingers, waits):
    consumer = Large([100, 100])
    batches = MessageBatches(consumer, 3000, lingers=lingers)  # type: ignore[arg-type]
    assert len(batches.next(60)) == 2
    assert [each > 0 for each in consumer.waits] == waits


def test_large_ones_behind_small_ones_are_few_before_they_are_noticed():
    consumer = Large([100] * 500 + [1 << 20] * 500)
    batches = MessageBatches(consumer, 5000, lingers=False)  # type: ignore[arg-type]
    assert sum(map(len, batches.next(1))) < messages.BATCH_BYTES + (64 << 20)
