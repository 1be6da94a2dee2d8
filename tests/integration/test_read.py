"""`changelog read`: topics of a real broker as lines, each record once, and what goes wrong."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, CorruptRecordError, LogError
from changelog.kafka.cluster import describe
from changelog.lines.ask import stored_offsets
from changelog.lines.forms.render import template_lines
from changelog.lines.forms.template import parse_template
from changelog.lines.place import At, BeforeEnd, End, FirstRecord, Since, Stored
from changelog.lines.reading import LinesRead, ReadRequest
from changelog.runtime.terminal import ClosedError, FileOutput
from tests.support.beginnings import remove_before
from tests.support.builders import make_relation
from tests.support.log_writer import LogWriter
from tests.support.services import own_broker
from tests.support.wait import wait_until

DEADLINE_S = 120


class Topic:
    def __init__(self, kafka, name, partitions=1):
        self.kafka, self.name = kafka, name
        self.admin = AdminClient({**kafka.client_config(), "log_level": 0})
        self.producer = Producer({**kafka.client_config(), "log_level": 0})
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        wait_until(self._is_there, 30, f"topic {name}")

    def _is_there(self):
        found = describe(self.kafka, [self.name])
        return found and found[self.name].led

    def put(self, *values, partition=0, **how):
        for value in values:
            self.producer.produce(self.name, value, partition=partition, **how)
        assert self.producer.flush(30) == 0

    def remove_before(self, offset, partition=0):
        remove_before(self.admin, TopicPartition(self.name, partition, offset))

    def stored(self, group):
        config = {**self.kafka.client_config(), "group.id": group, "log_level": 0}
        with closing(Consumer(config)) as consumer:
            return stored_offsets(consumer, self.name, [0])

    def reading(self, out, *, show=None, **wanted):
        lines = template_lines(
            parse_template("{value}"), key=None, value=show, null=b"-", delimiter=b"\n"
        )
        return LinesRead(self.kafka, ReadRequest(topic=self.name, **wanted), lines, out)

    def read(self, **wanted):
        """Return what is shown up to now, or to the end that is wanted."""
        out = Taken()
        end = {} if {"until", "count"} & wanted.keys() else {"until": End()}
        began = time.monotonic()
        reached = self.reading(out, **end, **wanted).run(
            lambda: time.monotonic() - began > DEADLINE_S
        )
        assert reached, f"not within {DEADLINE_S} s: {out.raw!r}"
        return out.lines()


class Taken(FileOutput):
    """Takes what is written, or some bytes of it and closes then."""

    def __init__(self, room=None):
        self.raw, self._room = b"", room

    def write(self, raw):
        if self._room is not None and len(self.raw) + len(raw) > self._room:
            raise ClosedError
        self.raw += raw

    def check(self):
        """Stay open."""

    def lines(self):
        return self.raw.decode().splitlines()


@pytest.fixture
def make_topic(kafka, prefix):
    return lambda name="t", partitions=1: Topic(kafka, f"{prefix}.{name}", partitions)


@pytest.fixture
def topic(make_topic):
    return make_topic()


@pytest.fixture
def command(kafka, registry, tmp_path):
    """Words of `changelog read` against the test's servers."""

    def words(*more, brokers=kafka.brokers):
        servers = ["--broker", brokers, "--schema-registry", registry.url]
        return [sys.executable, "-m", "changelog", "read", *servers, *more]

    return words


@pytest.fixture
def read(command, tmp_path):
    def ran(*more, **how):
        return subprocess.run(
            command(*more, **how), cwd=tmp_path, capture_output=True, timeout=120, check=False
        )

    return ran


@contextmanager
def process(command, *more):
    ran = subprocess.Popen(command(*more), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield ran
    finally:
        ran.kill()
        ran.communicate()


def test_a_captured_topic_is_shown_as_objects(kafka, registry, prefix, read):
    log = LogWriter(kafka, registry, make_relation(), prefix=prefix, partitions=1)
    log.put((b"1", b"one"))
    log.delete_key(b"1")
    log.freeze()
    ran = read(log.topic, "--json", "-e")
    assert ran.returncode == 0, ran.stderr
    row, gone = (json.loads(line) for line in ran.stdout.splitlines())
    assert (row["key"], row["value"]) == ({"id": 1}, {"id": 1, "name": "one"})
    assert (gone["key"], gone["value"]) == ({"id": 1}, None)
    assert row["headers"]["op"] == "c"
    assert row["headers"]["position"].startswith("1:0/")
    assert row["headers"]["ts"] == "1970-01-01T00:00:00+00:00"
    ran = read(log.topic, "-e", "--format", r"{key}\t{value}\t{lsn}\t{op}")
    assert ran.stdout.splitlines()[0].startswith(b'{"id":1}\t{"id":1,"name":"one"}\t0/')
    assert ran.stdout.splitlines()[1].startswith(b'{"id":1}\tNULL\t0/')


def test_a_read_begins_and_ends_where_it_is_told(make_topic):
    topic = make_topic(partitions=2)
    first_ms = time.time_ns() // 1_000_000 - 60_000
    topic.put(*"abcde", timestamp=first_ms)
    topic.put(*"fg", timestamp=first_ms + 4_000)
    topic.put(*"xyz", partition=1, timestamp=first_ms + 2_000)
    assert sorted(topic.read()) == [*"abcdefgxyz"]
    assert sorted(topic.read(start=BeforeEnd(2))) == [*"fgyz"]
    assert sorted(topic.read(start=At(2))) == [*"cdefgz"]
    assert topic.read(start=At(2), until=At(4), partitions=(0,)) == [*"cd"]
    assert sorted(topic.read(start=Since(first_ms + 1_000))) == [*"fgxyz"]
    assert sorted(topic.read(until=Since(first_ms + 1_000))) == [*"abcde"]
    assert topic.read(start=End()) == []
    assert topic.read(partitions=(0,), count=3) == [*"abc"]
    assert topic.read(partitions=(0,), start=At(5), until=At(5)) == []
    for wanted in ({"start": At(4)}, {"partitions": (2,)}):
        with pytest.raises(ConfigurationError):
            topic.read(**wanted)
    topic.remove_before(3)
    assert topic.read(partitions=(0,), count=1) == ["d"]
    with pytest.raises(ConfigurationError, match="partition 0 has 3 to 7"):
        topic.read(partitions=(0,), start=At(2))


def test_an_end_among_gaps_is_reached_and_aborted_records_are_not_shown(kafka, topic):
    writer = Producer({**kafka.client_config(), "transactional.id": topic.name, "log_level": 0})
    writer.init_transactions(30)
    for values, end in (("ab", writer.commit_transaction), ("cd", writer.abort_transaction)):
        writer.begin_transaction()
        for value in values:
            writer.produce(topic.name, value)
        writer.flush(30)
        end(30)
    assert topic.read() == [*"ab"]
    assert topic.read(committed=False) == [*"abcd"]
    writer.begin_transaction()
    writer.produce(topic.name, "e")
    writer.flush(30)
    assert topic.read() == [*"ab"], "the end is where the open transaction begins"
    writer.abort_transaction(30)


def test_a_topic_is_followed_also_where_it_gets_partitions(topic):
    out, ended = Taken(), threading.Event()
    reading = topic.reading(out, look_s=0.2)
    runner = threading.Thread(target=lambda: reading.run(ended.is_set))
    runner.start()
    try:
        topic.put("a")
        wait_until(lambda: out.lines() == ["a"], DEADLINE_S, "the first record is shown")
        topic.admin.create_partitions([NewPartitions(topic.name, 2)])[topic.name].result()
        grown = Producer(topic.kafka.client_config())
        wait_until(
            lambda: len(grown.list_topics(topic.name).topics[topic.name].partitions) == 2,
            DEADLINE_S,
            "the partition is there",
        )
        grown.produce(topic.name, "b", partition=1)
        grown.flush(30)
        wait_until(lambda: out.lines() == ["a", "b"], DEADLINE_S, "its records are shown")
    finally:
        ended.set()
        runner.join()


def test_a_group_goes_on_where_it_ended(topic):
    topic.put(*"abcdef")
    assert topic.read(group=topic.name, start=Stored(), count=2) == [*"ab"]
    assert topic.read(group=topic.name, start=Stored(), partitions=(0,), count=1) == ["c"]
    assert topic.read(group=topic.name, start=Stored()) == [*"def"]
    assert topic.read(group=topic.name, start=FirstRecord()) == []
    assert topic.read() == [*"abcdef"]


def test_a_place_of_a_group_that_is_gone_is_told(topic):
    topic.put(*"abcdef")
    assert topic.read(group=topic.name, start=Stored(), count=2) == [*"ab"]
    topic.remove_before(4)
    with pytest.raises(LogError, match="2 of partition 0, which has 4 to 6"):
        topic.read(group=topic.name, start=Stored())
    assert topic.read(group=topic.name, start=FirstRecord()) == [*"ef"]


def bad(raw):
    if raw == b"bad":
        raise CorruptRecordError("it is bad")
    return raw


def test_a_group_stands_before_a_record_that_cannot_be_shown(topic):
    topic.put("a", "b", "bad", "c")
    for expected in (b"a\nb\n", b""):
        out = Taken()
        reading = topic.reading(out, show=bad, group=topic.name, start=Stored(), until=End())
        with pytest.raises(CorruptRecordError, match="partition 0, offset 2"):
            reading.run(lambda: False)
        assert out.raw == expected
    assert topic.read(group=topic.name, start=Stored()) == ["bad", "c"]


def _cut_off(topic):
    """Close the output in the midst of a read by a group; return what all reads have shown."""
    topic.put(*"abcdef")
    begun = topic.read(group=topic.name, start=Stored(), count=2)
    cut = topic.reading(Taken(room=0), group=topic.name, start=Stored(), until=End())
    with pytest.raises(ClosedError):
        cut.run(lambda: False)
    return begun + topic.read(group=topic.name, start=Stored())


def test_what_a_closed_output_did_not_take_is_shown_again(topic):
    assert _cut_off(topic) == [*"abcdef"]


def test_a_place_that_moves_before_the_output_has_its_lines_loses_them(topic, monkeypatch):
    shown = LinesRead._show

    def too_early(self, records):
        self._progress.note(records)
        shown(self, records)

    monkeypatch.setattr(LinesRead, "_show", too_early)
    assert _cut_off(topic) != [*"abcdef"]


def test_a_reader_that_is_killed_leaves_out_nothing(topic, command, read):
    topic.put(*map(str, range(50_000)))
    words = ("--group", topic.name, "--format", "{value}", "-p", "0")  # without sharing: no session
    with process(command, topic.name, *words) as killed:
        shown = [killed.stdout.readline() for _ in range(3_000)]
        killed.kill()
        shown += killed.stdout.read().splitlines(keepends=True)
    again = read(topic.name, *words, "-e")
    assert again.returncode == 0, again.stderr
    whole = {int(line) for line in shown if line.endswith(b"\n")}
    assert whole | {int(line) for line in again.stdout.splitlines()} == {*range(50_000)}


@pytest.mark.matrix
def test_brokers_that_are_away_for_a_while_are_waited_for(tmp_path):
    with own_broker() as broker:
        kafka = KafkaConnection(brokers=f"127.0.0.1:{broker.port}")
        topic = Topic(kafka, "t")
        topic.put("a")
        with process(
            lambda *more: [
                sys.executable, "-m", "changelog", "read", "t", "--broker", kafka.brokers, *more
            ],
            "--format", "{value}", "--group", "g",
        ) as followed:  # fmt: skip
            assert followed.stdout.readline() == b"a\n"
            broker.stop()
            assert b"waiting for the brokers" in followed.stderr.readline()
            broker.start()
            topic.put("b")
            assert followed.stdout.readline() == b"b\n"
            wait_until(
                lambda: topic.stored("g") == {0: 2}, DEADLINE_S, "the group stands behind both"
            )
            followed.send_signal(signal.SIGTERM)
            assert followed.wait(DEADLINE_S) == 0
            assert followed.stdout.read() == b"", "each was shown once"
        assert topic.read(group="g", start=Stored()) == []


def test_members_of_a_group_share_a_topic_and_show_each_record_once(make_topic):
    topic, ended = make_topic(partitions=4), threading.Event()
    outs, runners = [], []

    def join():
        outs.append(Taken())
        leave = threading.Event()
        reading = topic.reading(outs[-1], group=topic.name, start=Stored())
        runner = threading.Thread(
            target=lambda: reading.run(lambda: ended.is_set() or leave.is_set())
        )
        runner.start()
        runners.append(runner)
        return leave

    def shown():
        return sorted(int(line) for out in outs for line in out.lines())

    sent = 0

    def put(done, what):
        nonlocal sent

        def more():
            nonlocal sent
            topic.put(*map(str, range(sent, sent + 4)), partition=sent // 4 % 4)
            sent += 4
            return done()

        wait_until(more, DEADLINE_S, what)

    try:
        leave = join()
        put(outs[0].lines, "the first member shows records")
        join()
        put(outs[1].lines, "the second one too")
        leave.set()
        put(lambda: not runners[0].is_alive(), "the first one leaves")
        wait_until(lambda: shown() == [*range(sent)], DEADLINE_S, "each record is shown once")
    finally:
        ended.set()
        for runner in runners:
            runner.join()


def test_a_follower_ends_with_its_reader_and_with_a_signal(topic, command):
    topic.put("a")
    with process(command, topic.name, "--format", "{value}") as followed:
        assert followed.stdout.readline() == b"a\n"
        topic.put("b")
        assert followed.stdout.readline() == b"b\n"
        followed.stdout.close()  # nothing more comes, so that only the pipe itself can tell
        assert followed.wait(DEADLINE_S) == 0
        assert followed.stderr.read() == b""
    with process(command, topic.name) as followed:
        followed.stdout.readline()
        followed.send_signal(signal.SIGTERM)
        assert followed.wait(DEADLINE_S) == 0
    with process(command, topic.name, "--until", "9") as bounded:
        bounded.stdout.readline()
        bounded.send_signal(signal.SIGINT)
        assert bounded.wait(DEADLINE_S) == 130, "not all that was asked for was shown"


def test_what_cannot_be_read_is_told_with_its_exit_code(topic, read, command, tmp_path):
    topic.put("a", b"\0\x7f\xff\xff\xff?", "c")  # an id that no registry of tests gets to
    unknown = read(f"{topic.name}x", "-e")
    assert (unknown.returncode, unknown.stdout) == (2, b"")
    assert f'there is no topic "{topic.name}x" | hint: near it: {topic.name}' in (
        unknown.stderr.decode()
    )
    undecodable = read(topic.name, "-e", "--format", "{offset}")
    assert undecodable.stdout == b"0\n1\n2\n", "what is not shown need not be decoded"
    undecodable = read(topic.name, "-e", "--format", "{value}")
    assert (undecodable.returncode, undecodable.stdout) == (1, b"a\n")
    assert b"partition 0, offset 1: the value cannot be shown" in undecodable.stderr
    assert b"does not know schema 2147483647" in undecodable.stderr
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            command(topic.name, "-e", "--as", "hex"),
            stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, timeout=120, check=False,
        )  # fmt: skip
    assert ran.returncode == 1
    assert b"standard output cannot be written: " + os.strerror(28).encode() in ran.stderr


@pytest.mark.matrix  # the client takes its time to give up
def test_brokers_that_are_away_are_told(topic, read):
    away = read(topic.name, "-e", brokers="127.0.0.1:1")
    assert (away.returncode, away.stdout) == (1, b"")
    assert b"no Kafka broker answers at 127.0.0.1:1" in away.stderr
