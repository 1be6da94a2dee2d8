"""Messages of `pg_logical_emit_message` on their topic: which, in what order, after which crash."""

from contextlib import closing

import psycopg2
import pytest

from changelog.contract.base.headers import Op, decode_headers
from changelog.kafka.cluster import describe
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow]

ALL = ("--messages", "*")


class Capture(CrashingCapture):
    def messages(self):
        """Return (prefix, content, headers) of each message before the frontier's ends."""
        topic = f"{self.prefix}._messages"
        found = self.reader.messages(topic, self.frontier().ends[topic])
        return [
            (each.key().decode(), each.value(), decode_headers(each.headers())) for each in found
        ]

    def contents(self):
        return [int(content) for _, content, _ in self.messages()]


capture = capture_with(
    Capture, "CREATE TABLE notes (id integer PRIMARY KEY, text text)", settings='messages = ["*"]\n'
)


def emit(prefix, content, *, transactional=True):
    return f"SELECT pg_logical_emit_message({transactional}, '{prefix}', '{content}')"


def numbered(count, start=0):
    """Return statements with one message each: in transactions of several, and in none."""
    made = []
    for number in range(start, start + count):
        inside = number % 3 != 0
        statement = emit("outbox", number, transactional=inside)
        more = f"; INSERT INTO notes VALUES ({number})" if number % 2 else ""
        made.append(statement + more)
    return made


def test_messages_stand_on_their_topic_in_the_order_of_the_commits(capture):
    capture.catch_up()
    with closing(psycopg2.connect(capture.dsn)) as first:
        cursor = first.cursor()
        cursor.execute(emit("a", "committed last"))
        cursor.execute(emit("a", "at once", transactional=False))
        capture.sql("INSERT INTO notes VALUES (1); " + emit("b.c", "in between"))
        first.commit()
        cursor.execute(emit("a", "taken back"))
        cursor.execute(emit("a", "said all the same", transactional=False))
        first.rollback()
    capture.sql("SELECT pg_logical_emit_message(true, '', '\\x00ff'::bytea)")
    capture.sql(emit("changelog", "ours"), emit("changelog.any", "ours", transactional=False))
    report = capture.catch_up()
    found = capture.messages()
    assert [(prefix, content) for prefix, content, _ in found] == [
        ("a", b"at once"),
        ("b.c", b"in between"),
        ("a", b"committed last"),
        ("a", b"said all the same"),
        ("", b"\x00\xff"),
    ]
    positions = [headers.position for _, _, headers in found]
    assert positions == sorted(set(positions))
    assert {headers.op for _, _, headers in found} == {Op.MESSAGE}
    assert all(position.commit_lsn < capture.frontier().lsn for position in positions)
    topic = f"{capture.prefix}._messages"
    raw = capture.reader.messages(topic, capture.frontier().ends[topic])
    assert [dict(each.headers())["transactional"] for each in raw] == [b"f", b"t", b"t", b"f", b"t"]
    assert report["messages"] == 5
    described = describe(capture.kafka, [topic])[topic]
    assert (described.partitions, described.settings["cleanup.policy"]) == (1, "delete")
    # A message is counted among the rows of its transaction.
    ((_, _, _, _, row),) = capture.reader.read(
        capture.frontier(), f"{capture.prefix}.notes"
    ).records
    commit, sequence = found[1][2].position.commit_lsn, found[1][2].position.sequence
    assert (row.position.commit_lsn, row.position.sequence) == (commit, 0)
    assert sequence == 4


@pytest.mark.matrix
def test_only_messages_of_the_prefixes_asked_for_are_captured(capture):
    capture.catch_up("--messages", "outbox.*,exact")
    capture.sql(*(emit(each, each) for each in ("outbox.a", "exact", "exactly", "outboxes", "z")))
    capture.catch_up("--messages", "outbox.*,exact")
    assert [prefix for prefix, _, _ in capture.messages()] == ["outbox.a", "exact"]


@pytest.mark.matrix
def test_without_the_option_messages_are_named_and_make_no_topic(capture):
    (capture.folder / "changelog.toml").write_text(
        (capture.folder / "changelog.toml").read_text().replace('messages = ["*"]\n', "")
    )
    capture.catch_up()
    capture.sql(emit("outbox", 1), emit("outbox", 2))
    _, _, said = capture.run("--until", "now")
    assert said.count('not captured: messages, such as of the prefix "outbox"') == 1
    topic = f"{capture.prefix}._messages"
    assert describe(capture.kafka, [topic]) == {}
    assert topic not in capture.frontier().ends
    # Later they are, from then on.
    capture.catch_up(*ALL)
    capture.sql(emit("outbox", 3))
    capture.catch_up(*ALL)
    assert capture.contents() == [3]


@pytest.mark.matrix
@pytest.mark.parametrize(
    "point", first(1, ["message produced:7", "transaction produced:5", "acknowledged"])
)
def test_a_kill_loses_no_message_and_writes_none_twice(capture, point):
    capture.catch_up()
    capture.sql(*numbered(20))
    capture.crash(point, defect="deliver_each")
    capture.sql(*numbered(20, start=20))
    capture.finish()
    assert capture.contents() == list(range(40))


@pytest.mark.matrix
def test_twin_a_message_at_the_place_of_the_commit_before_it_is_lost(capture):
    capture.catch_up()
    capture.sql(*numbered(20))
    capture.crash("message produced:6", defect="place_with_the_last_commit")
    capture.finish(defect="place_with_the_last_commit")
    with pytest.raises(AssertionError):
        assert capture.contents() == list(range(20))


@pytest.mark.matrix
def test_twin_a_writer_that_forgets_to_skip_writes_messages_twice(capture):
    capture.catch_up()
    capture.sql(*numbered(20))
    capture.crash("message produced:7", defect="deliver_each")
    capture.finish(defect="forget_to_skip_messages")
    with pytest.raises(AssertionError):
        assert capture.contents() == list(range(20))


@pytest.mark.matrix
def test_messages_that_retention_removed_do_not_stop_a_resume(capture):
    capture.catch_up()
    capture.sql(*numbered(5))
    capture.crash("message produced:5", defect="deliver_each")
    topic = f"{capture.prefix}._messages"
    capture.reader.delete_before(topic, 0, 4)
    capture.finish()
    # What follows the last position that is left goes on; nothing that was taken comes back.
    assert capture.contents() == [4]
    capture.sql(*numbered(2, start=5))
    capture.catch_up()
    assert capture.contents() == [4, 5, 6]
