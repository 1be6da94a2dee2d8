"""`changelog write`: lines to a topic of a real broker, and what goes wrong."""

import json
import os
import signal
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from changelog.contract.base.errors import LogError
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.partition import partition_of
from changelog.kafka.cluster import Cluster, describe
from changelog.lines.forms.parse import InputError, LineFormat, line_parser
from changelog.lines.forms.render import json_lines
from changelog.lines.forms.shown import As, token
from changelog.lines.place import End
from changelog.lines.reading import LinesRead, ReadRequest
from changelog.lines.writing import WriteTarget, Writing
from changelog.runtime.terminal import FileOutput
from changelog.sink.producer import LogProducer
from tests.support.wait import wait_until

DEADLINE_S = 120


class Taken(FileOutput):
    def __init__(self):
        self.raw = b""

    def write(self, raw):
        self.raw += raw

    def check(self):
        """Stay open."""


@pytest.fixture
def make_topic(kafka, prefix):
    def make(name="t", partitions=2, **settings):
        topic = f"{prefix}.{name}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = AdminClient({**kafka.client_config(), "log_level": 0})
        admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)
        wait_until(
            lambda: topic in (found := describe(kafka, [topic])) and found[topic].led,
            30,
            f"topic {topic}",
        )
        return topic

    return make


@pytest.fixture
def shown(kafka):
    """What a topic holds, as objects."""

    def read(topic, form=As.TEXT):
        show, out = token(form, lambda raw: raw), Taken()
        lines = json_lines(topic, key=show, value=show, delimiter=b"\n")
        assert LinesRead(kafka, ReadRequest(topic=topic, until=End()), lines, out).run(
            lambda: False
        )
        return [json.loads(line) for line in out.raw.splitlines()]

    return read


@pytest.fixture
def command(kafka):
    def words(name, topic, *more):
        return [sys.executable, "-m", "changelog", name, topic, "--broker", kafka.brokers, *more]

    return words


@pytest.fixture
def write(kafka):
    def ran(topic, *lines, given=None, stop=lambda: False, **target):
        parse = line_parser(given or LineFormat())
        writing = Writing(kafka, WriteTarget(topic=topic, **target), parse)
        writing.run(iter([list(lines)]), stop)

    return ran


def pairs(found):
    return sorted((each["key"], each["value"]) for each in found)


def test_lines_are_keyed_records_where_other_clients_look_for_them(
    make_topic, command, shown, tmp_path
):
    topic = make_topic()
    ran = subprocess.run(
        command("write", topic, "--null", "", "-H", "by=hand"),
        input=b"a\t1\nb\t\nc\tx\ty", cwd=tmp_path, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    found = shown(topic)
    assert {each["key"]: each["value"] for each in found} == {"a": "1", "b": None, "c": "x\ty"}
    assert all(each["headers"] == {"by": "hand"} for each in found)
    assert all(each["partition"] == partition_of(each["key"].encode(), 2) for each in found)


def test_progress_is_shown_where_somebody_looks(make_topic, command, tmp_path):
    """Of a file, whose end is known, and of a pipe."""
    topic, lines = make_topic(), tmp_path / "lines"
    lines.write_bytes(b"".join(b"%d\tx\n" % number for number in range(1000)))
    terminal = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm"}

    def write(**given):
        return subprocess.run(
            command("write", topic), cwd=tmp_path, capture_output=True, timeout=120, check=False,
            env=terminal, **given,
        )  # fmt: skip

    with lines.open("rb") as file:
        whole = write(stdin=file)
    for ran in (whole, write(input=lines.read_bytes())):
        assert (ran.returncode, b"1,000 rows" in ran.stderr) == (0, True), ran.stderr


def test_a_topic_is_copied_whole_through_a_pipe(kafka, make_topic, command, shown, tmp_path):
    one, other = make_topic("one"), make_topic("other")
    producer = LogProducer.open(kafka)
    ours = encode_headers(Position(1, Lsn(7), 3), Op.CREATE, 1_706_704_496_789_000)
    producer.produce(one, b"\0\xff\n", b"\0\0\0\0\1\xff", [*ours, ("raw", b"\xff")])
    producer.produce(one, b"\0\xff\n", None, [("none", None)])
    producer.produce(one, b"", b"", [])
    producer.flush(30)
    words = (" ".join(command(*each)) for each in (
        ("read", one, "-e", "--json", "--as", "base64"),
        ("write", other, "--json", "--as", "base64"),
    ))  # fmt: skip
    subprocess.run(
        ["bash", "-c", f"set -o pipefail; {' | '.join(words)}"],
        cwd=tmp_path, check=True, timeout=120,
    )  # fmt: skip

    def records(topic):
        found = shown(topic, As.BASE64)
        return [(each["key"], each["value"], each["headers"]) for each in found]

    assert sorted(records(one), key=str) == sorted(records(other), key=str)
    assert len(records(other)) == 3


def test_a_line_that_is_no_record_ends_behind_those_before_it(make_topic, write, shown):
    topic = make_topic()
    with pytest.raises(InputError, match=r"line 3: .* 2 lines before it are written"):
        write(topic, b"a\t1", b"b\t2", b"c", b"d\t4")
    assert pairs(shown(topic)) == [("a", "1"), ("b", "2")]


def test_a_transaction_is_all_of_the_input_or_nothing(make_topic, write, shown):
    topic = make_topic()
    with pytest.raises(InputError, match=r"line 3: .* nothing was written"):
        write(topic, b"a\t1", b"b\t2", b"c", whole=True)
    assert shown(topic) == []
    write(topic, b"a\t1", b"b\t2", whole=True)
    assert pairs(shown(topic)) == [("a", "1"), ("b", "2")]


def test_a_transaction_that_is_written_is_seen_by_who_reads_then(kafka, make_topic, write):
    """With many partitions some are marked late: the brokers confirm a commit before."""
    topic = make_topic(partitions=60)
    places, cluster = [(topic, number) for number in range(60)], Cluster(kafka)
    for _ in range(10):
        write(topic, *(b"%d\tx" % number for number in range(600)), whole=True)
        assert cluster.ends(places, committed=True) == cluster.ends(places)


def test_a_transaction_that_is_committed_line_by_line_stands_in_part(
    make_topic, write, shown, monkeypatch
):
    produce = LogProducer.produce

    def too_early(self, *record):
        produce(self, *record)
        self.commit()

    monkeypatch.setattr(LogProducer, "produce", too_early)
    topic = make_topic()
    with pytest.raises(InputError, match="nothing was written"):
        write(topic, b"a\t1", b"b\t2", b"c", whole=True)
    assert shown(topic) != [], "the defect must be seen"


def test_a_record_that_the_topic_does_not_take_is_told(make_topic, write):
    compacted = make_topic("compacted", cleanup_policy="compact")
    with pytest.raises(
        InputError, match=f'line 1: a record without a key, which topic "{compacted}"'
    ):
        write(compacted, b"a", given=LineFormat(keyed=False))
    small = make_topic("small", max_message_bytes="1000")
    with pytest.raises(LogError, match="does not take a record"):
        write(small, b"a\t" + os.urandom(100_000))


def test_lines_are_written_as_they_come_until_somebody_ends_it(
    make_topic, command, shown, tmp_path
):
    topic = make_topic()
    with subprocess.Popen(
        command("write", topic, "--json"), cwd=tmp_path, stdin=subprocess.PIPE
    ) as ran:
        assert ran.stdin is not None
        ran.stdin.write(b'{"key":"a","value":{"n":1.10}}\n{"key":"b"')
        ran.stdin.flush()
        wait_until(lambda: shown(topic), DEADLINE_S, "the first line is written")
        ran.send_signal(signal.SIGTERM)
        assert ran.wait(DEADLINE_S) == 130
    assert pairs(shown(topic)) == [("a", '{"n":1.10}')]


def test_what_cannot_be_written_to_is_told(make_topic, command, tmp_path):
    topic = make_topic()
    for words, code, said in (
        ((f"{topic}x",), 2, b"there is no topic"),
        ((topic, "-p", "9"), 2, b"has no partition 9"),
        ((topic, "--as", "avro"), 2, b"cannot be written as avro"),
        ((topic,), 1, b"line 1: there is no separator"),
    ):
        ran = subprocess.run(
            command("write", *words), input=b"x", cwd=tmp_path, capture_output=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (code, b""), ran.stderr
        assert said in ran.stderr


AWAY = "127.0.0.1:1"


@pytest.mark.matrix  # the client takes its time to give up
@pytest.mark.parametrize("words", [["write", "t"], ["topics", "--create", "t"]])
def test_brokers_that_are_away_are_told(words, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "changelog", *words, "--broker", AWAY], input=b"a\tb\n",
        cwd=tmp_path, capture_output=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (1, b""), ran.stderr
    said = ran.stderr.decode()
    assert f"no Kafka broker answers at {AWAY}" in said
    assert "hint:" in said
    assert "Traceback" not in said
