"""Records that are sent and waited for: refusals, silence and a full queue."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from changelog.kafka.send import OutgoingRecord, send


class Delivered:
    def __init__(self, offset):
        self._offset = offset

    def offset(self):
        return self._offset


class Producer:
    """A producer of brokers that take, refuse or keep silent about each record in turn."""

    def __init__(self, answers, room=2):
        self._answers, self._room, self._queue, self.sent = list(answers), room, [], []

    def produce(self, topic, value, key, *, partition, headers, on_delivery):
        if len(self._queue) == self._room:
            raise BufferError
        self.sent.append((topic, key, value, partition, headers))
        self._queue.append(on_delivery)

    def poll(self, _seconds):
        self.flush(0)

    def flush(self, _seconds):
        while self._queue and self._answers[0] != "silent":
            answer, on_delivery = self._answers.pop(0), self._queue.pop(0)
            if isinstance(answer, int):
                on_delivery(None, Delivered(answer))
            else:
                on_delivery(KafkaError(answer.code), Delivered(None))
        return len(self._queue)


class Refusal:
    code = KafkaError.MSG_SIZE_TOO_LARGE


def sent(answers, count=3, **named):
    producer = Producer(answers, **named)
    records = [OutgoingRecord(b"k", b"%d" % n, [("h", b"v")], 0) for n in range(count)]
    return send(producer, "t", iter(records), answer_s=1), producer  # type: ignore[arg-type]


def test_all_are_there_when_it_returns_and_it_says_where_they_end():
    end, producer = sent([4, 7, 8])
    assert end == 9
    assert producer.sent == [("t", b"k", b"%d" % n, 0, [("h", b"v")]) for n in range(3)]
    assert sent([], 0)[0] == 0


@pytest.mark.parametrize("answers", [[Refusal, 5, 6], [4, 5, Refusal], [4, Refusal, "silent"]])
def test_one_that_is_refused_is_told(answers):
    with pytest.raises(KafkaException) as raised:
        sent(answers)
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_brokers_that_say_nothing_are_told():
    with pytest.raises(KafkaException) as raised:
        sent([4, 5, "silent"])
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
