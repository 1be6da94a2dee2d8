"""Commands of kcat's README and man page, run by kcat itself and by ours on the same topics."""

import functools
import json
import os
import shlex
import signal
import struct
import subprocess
import uuid
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from changelog.cli import app
from changelog.contract.base.errors import CorruptRecordError
from changelog.kafka.cluster import describe
from tests.support.debian import from_debian
from tests.support.wait import wait_until

SECONDS = 60
WHEN = 1_700_000_000_000
"""The time of the first record; each later one is a millisecond newer."""
RECORDS = [
    (b"a", b"1", [("h1", b"v1"), ("null", None), ("empty", b""), ("h1", b"again")]),
    (b"b", None, []),
    (None, b"no key", []),
    (b"", b"x:y", []),
    ("ü".encode(), b'"quoted" \\u001f \x01\x1f\x7f\t/ and \xc3\xbc', [("\x1b", b"\x1e")]),
    (b"100%", b"{value} %s", []),
]


@pytest.fixture(scope="module")
def kcat():
    """Run Debian's kcat, with the libraries of its own packages."""
    program, *libraries = (
        from_debian(package, pattern)[0]
        for package, pattern in (
            ("kcat", "usr/bin/kcat"),
            ("librdkafka1", "usr/lib/*/librdkafka.so.1"),
            ("libyajl2", "usr/lib/*/libyajl.so.2.1.0"),
        )
    )
    yajl = libraries[1].with_name("libyajl.so.2")  # a link in the package, which is not kept
    if not yajl.exists():
        yajl.symlink_to(libraries[1].name)
    path = os.pathsep.join(str(each.parent) for each in libraries)

    def run(*words, given=b""):
        # Without a mode kcat takes the one that fits its input, which is no terminal here.
        mode = [] if {"-C", "-P", "-L", "-Q"} & {*words} else ["-P" if given else "-C"]
        return subprocess.run(
            [program, *mode, *words, "-q"], input=given, capture_output=True,
            check=True, timeout=SECONDS, env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": path},
        ).stdout  # fmt: skip

    return run


@pytest.fixture
def make_topic(kafka):
    """Make a topic that holds records, in turns of its partitions."""
    client = {**kafka.client_config(), "log_level": 0}
    admin = AdminClient(client)

    def make(records=(), partitions=1):
        topic = f"kcat.{uuid.uuid4()}"
        settings = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
        new = NewTopic(topic, partitions, 1, config=settings)
        admin.create_topics([new])[topic].result(SECONDS)
        wait_until(
            lambda: topic in (found := describe(kafka, [topic])) and found[topic].led,
            SECONDS,
            f"topic {topic}",
        )
        producer = Producer(client)
        for number, (key, value, headers) in enumerate(records):
            where, when = number % partitions, WHEN + number
            producer.produce(topic, value, key, where, timestamp=when, headers=headers)
        assert producer.flush(SECONDS) == 0
        return topic

    return make


@pytest.fixture
def ours(capfdbinary, tmp_path, monkeypatch):
    """Run a command of ours in this process; its lines come and go by the descriptors."""
    monkeypatch.chdir(tmp_path)
    kept = os.dup(0)

    def run(*words, given=b""):
        (tmp_path / "given").write_bytes(given)
        with (tmp_path / "given").open("rb") as lines:
            os.dup2(lines.fileno(), 0)
        capfdbinary.readouterr()
        ran = CliRunner().invoke(app, words)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return capfdbinary.readouterr().out + ran.stdout_bytes

    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield run
    for each, handler in handlers.items():
        signal.signal(each, handler)
    os.dup2(kept, 0)
    os.close(kept)


NOTHING = "-b BROKER -t TOPIC -o end -e"
READS = [
    "-C -b BROKER -t TOPIC -p 0 -o -2000 -e",
    "-C -b BROKER -t TOPIC -e",
    "-b BROKER -t TOPIC -J -e",
    r"-b BROKER -t TOPIC -f 'Topic %t[%p], offset: %o, key: %k, payload: %S bytes: %s\n' -e",
    "-C -b BROKER -X broker.version.fallback=0.8.2.1 -t TOPIC -p 0 -o -100 -e",
    r"-b BROKER -C -t TOPIC -f 'Headers: %h: Message value: %s\n' -e",
    f"-b BROKER -C -t TOPIC -o s@{WHEN + 1} -o e@{WHEN + 4}",
    r"-b BROKER -C -f '\nKey (%K bytes): %k\t\nValue (%S bytes): %s\n\Part: %p\n' -t TOPIC -p 1 -e",
    r"-t TOPIC -b BROKER -f '%T %R%% \x41\n' -p 0 -e",
    "-b BROKER -t TOPIC -K: -e",
    r"-b BROKER -t TOPIC -K\t -D\x7c -p 1 -e",
    "-b BROKER -t TOPIC -p 0 -o 1 -c 1 -u",
    "-b BROKER -t TOPIC -p 1 -o -1 -Z -K = -e",
    NOTHING,
    "-b BROKER -t TOPIC -p 0 -J -Z -D ; -e",
    "-L -b BROKER -t TOPIC",
    "-b BROKER -L -J -t TOPIC",
    f"-b BROKER -Q -t TOPIC:1:{WHEN + 2} -t TOPIC:0:{WHEN + 99}",
    f"-b BROKER -Q -J -t TOPIC:1:{WHEN + 2} -t TOPIC:0:{WHEN + 99}",
]


def test_a_command_that_reads_prints_what_kcat_prints(kafka, make_topic, kcat, ours):
    topic = make_topic([*RECORDS, RECORDS[0]], 2)  # one partition is longer than the other
    printed = {}
    for each in READS:
        command = each.replace("BROKER", kafka.brokers).replace("TOPIC", topic)
        words = shlex.split(command)
        printed[each] = said(kcat(*words), command), said(ours("read", *words), command)
    assert {each: both for each, both in printed.items() if both[0] != both[1]} == {}
    assert [each for each, (theirs, _) in printed.items() if not theirs] == [NOTHING]


def said(raw, command):
    """Return what is said in an order that holds: partitions come as they like."""
    if " -L" in f" {command}":
        # Which of the connections answered is chance, and so is its name.
        return told(json.loads(raw)) if "-J" in command else raw.split(b"\n")[1:-1]
    if " -Q" in command:
        return raw.splitlines()
    return raw if " -p " in command else sorted(raw.splitlines())


def told(metadata):
    return {name: each for name, each in metadata.items() if name != "originating_broker"}


def test_numbers_are_shown_as_kcat_shows_them(kafka, make_topic, kcat, ours):
    topic = make_topic([(struct.pack(">i", -5), struct.pack(">hBQ", -2, 200, 3**40) + b"rest", [])])
    for packs in (("key=i$", "value=hB s"), ("value=c",), ("value=> bQ",), ("value=HBqs$",)):
        words = [word for pack in packs for word in ("-s", pack)]
        command = ["-b", kafka.brokers, "-C", "-t", topic, "-K:", "-e", *words]
        assert ours("read", *command) == kcat(*command)
    wrong = ("-b", kafka.brokers, "-C", "-t", topic, "-e", "-s", "value=hBq$")
    with pytest.raises(subprocess.CalledProcessError):
        kcat(*wrong)
    with pytest.raises(CorruptRecordError, match="the value cannot be shown: 4 bytes are left"):
        ours("read", *wrong)


@pytest.mark.parametrize("start", [["-o", "stored"], [], ["-o", "beginning"]])
def test_the_group_of_a_setting_is_the_one_that_is_read_as(kafka, make_topic, kcat, ours, start):
    """Its place counts for `stored` alone, and is moved then."""
    topic, found = make_topic(RECORDS), []
    for run in (kcat, functools.partial(ours, "read")):
        group = f"kcat.{uuid.uuid4()}"
        place = TopicPartition(topic, 0, 4)
        with closing(Consumer({**kafka.client_config(), "group.id": group})) as consumer:
            consumer.commit(offsets=[place], asynchronous=False)
            words = ("-C", "-b", kafka.brokers, "-t", topic, "-X", f"group.id={group}", "-e")
            printed = run(*words, *start)
            (then,) = consumer.committed([place], timeout=SECONDS)
        found.append((printed, then.offset))
    assert found[0] == found[1]
    assert (len(found[0][0].splitlines()), found[0][1]) == ((2, 6) if "stored" in start else (6, 4))


def test_a_group_of_kcat_s_begins_at_the_end_or_where_it_is_told(kafka, make_topic, ours):
    topic = make_topic(RECORDS)

    def lines(group, *more):
        words = ("-b", kafka.brokers, "-G", f"{topic}.{group}", topic, "-e", *more)
        return len(ours("read", *words).splitlines())

    assert lines("fresh") == 0
    assert [lines("other", "-X", "auto.offset.reset=earliest") for _ in range(2)] == [6, 0]
    assert lines("other", "-o", "-2") == 2


FILES = {
    "myfile1.bin": b"one\nfile",
    "empty": b"",
    "lines": b"x;k:y;;z",
    "conf": b"# c\nacks=all\n",
}
WRITES = [
    ("-b BROKER -t TOPIC -z snappy", "a line\nand another\n"),
    ("-P -b BROKER -t TOPIC -p 0 myfile1.bin empty", ""),
    ("-P -b BROKER -t TOPIC -X transactional.id=myproducerapp", "one\ntwo\n"),
    ("-b BROKER -t TOPIC -Z -K:", "abc:\n:v\nnone\n\nc:x:y"),
    (
        "-b BROKER -t TOPIC -H 'header1=a value' -H nullheader -H emptyheader= -H header1=another",
        "hello there\n",
    ),
    ("-b BROKER -X enable.idempotence=true -P -t TOPIC -e -u", "one\n"),
    ("-b BROKER -t TOPIC -K: -P", '1:{"order_id":1}\n2:{"order_id":2}\n'),
    ("-P -b BROKER -t TOPIC -l -D ';' -K : -k fixed lines", ""),
    ("-P -b BROKER -t TOPIC -c 2 -F conf -X topic.request.required.acks=-1", "1\n2\n3\n"),
]


@pytest.mark.parametrize(("command", "lines"), WRITES, ids=[command for command, _ in WRITES])
def test_a_command_that_writes_writes_what_kcat_writes(
    kafka, make_topic, kcat, ours, tmp_path, command, lines
):
    for name, raw in FILES.items():
        (tmp_path / name).write_bytes(raw)
    written = []
    command = command.replace("BROKER", kafka.brokers)
    for write in (kcat, functools.partial(ours, "write")):
        topic = make_topic()
        words = shlex.split(command.replace("TOPIC", topic))
        write(*words, given=lines.encode())
        shown = kcat("-b", kafka.brokers, "-C", "-t", topic, "-J", "-e").splitlines()
        written.append([strip(json.loads(each)) for each in shown])
    theirs, of_ours = written
    assert of_ours == theirs
    assert theirs


def strip(record):
    return {name: record.get(name) for name in ("key", "payload", "headers")}
