"""Commands as the documents of other programs print them: done, or refused with a translation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from changelog import commands
from changelog.capture.lines import command as lines
from changelog.cli import app
from changelog.config import load_project
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.contract.log.form import Envelope
from changelog.lines.client import given_settings
from changelog.runtime.edge import one_line
from changelog.runtime.translated import TranslatingCommand
from changelog.source.connect.connect import connect

PLACES = ("-b", "localhost:9092", "-r", "http://localhost:8081")


def places(words):
    """The servers of topics, which lines do not have."""
    return () if {"--print", "--into"} & {*words} else PLACES


URL = "postgres://user:pass@127.0.0.1:1/dbname"


def capture(folder, *words):
    result = CliRunner().invoke(app, ["capture", "--project", str(folder), *words])
    return result.exit_code, result.exception, result.output


@pytest.mark.parametrize(
    "words",
    [
        [f"--postgres={URL}"],
        ["-d", URL, "-s", "bottledwater"],
        ["-d", URL, "--slot=bottledwater"],
        ["-d", URL, "-b", "localhost:1,127.0.0.1:1"],
        ["-d", URL, "--broker=localhost:1"],
        ["-d", URL, "-r", "http://localhost:1"],
        ["-d", URL, "--schema-registry=http://localhost:1"],
        ["-d", URL, "-f", "avro"],
        ["-d", URL, "--output-format=json"],
        ["-d", URL, "-u"],
        ["-d", URL, "--allow-unkeyed"],
        ["-d", URL, "-p", "postgres"],
        ["-d", URL, "--topic-prefix=postgres"],
        ["-d", URL, "-e", "exit"],
        ["-d", URL, "--on-error=log"],
        ["-d", URL, "-x"],
        ["-d", URL, "--skip-snapshot"],
        ["-d", URL, "-ux"],
        ["-d", URL, "-C", "linger.ms=5"],
        ["-d", URL, "--kafka-config", "queue.buffering.max.ms=5"],
        ["-d", URL, "-T", "segment.ms=100000"],
        ["-d", "jdbc:postgresql://127.0.0.1:1/postgres?useUnicode=true&characterEncoding=utf8"],
        ["-d", URL, "--print", "--no-create-slot", "--start-lsn", "207967352"],
        ["-d", URL, "--print", "--temporary-slot", "--start-lsn", "0"],
        ["-d", URL, "--print", "--envelope", "flat", "--status-interval", "10"],
    ],
    ids=" ".join,
)
def test_a_command_of_others_is_understood(tmp_path, monkeypatch, words):
    """Its options are read and fit together: the work itself would begin."""
    begun = []

    def begin(settings, *_, **__):
        begun.append(settings)
        raise ChangelogError("this is far enough")

    monkeypatch.setattr(commands, "_captured", begin)
    monkeypatch.setattr(lines, "line_run", begin)
    capture(tmp_path, *places(words), *words)
    (settings,) = begun
    assert settings.postgres.startswith(("postgres://", "postgresql://"))


def test_the_envelope_of_a_project_s_topics_is_not_that_of_lines(tmp_path, monkeypatch):
    begun = []

    def begin(settings, *_, **__):
        begun.append(settings.capture.envelope)
        raise ChangelogError("this is far enough")

    monkeypatch.setattr(lines, "line_run", begin)
    (tmp_path / "changelog.toml").write_text('capture.envelope = "nested"\n')
    capture(tmp_path, "-d", URL, "--into", str(tmp_path / "changes"))
    capture(tmp_path, "-d", URL, "--print", "--envelope", "flat")
    assert begun == [Envelope.ROW, Envelope.FLAT]


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["--config-help"]], ids=" ".join)
def test_help_is_printed(words):
    """In a process of its own: a command keeps the help option of its first use."""
    command = [sys.executable, "-m", "changelog", "capture", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "slot" in done.stdout) == (0, True)


def test_the_settings_of_the_client_are_listed():
    """librdkafka's own table, with ranges and defaults."""
    result = CliRunner().invoke(app, ["capture", "--config-help"])
    assert result.exit_code == 0
    assert "queue.buffering.max.ms" in result.output
    assert "## Topic configuration properties" in result.output


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["-k", "id"], "--key-index"),
        (["--key=id"], "--key-index"),
        (["-i", "a|b"], "--tables"),
        (["-o", "public|sales"], "--tables"),
        (["-g", "bw.ini"], "changelog.toml"),
        (["-S", "slot", "--start", "-f", "-"], "--slot"),
        (["--start"], "--print"),
        (["--drop-slot"], "changelog slot drop"),
        (["-E", "0/1"], "--until"),
        (["-I", "0/1"], "--start-lsn"),
        (["-P", "pgoutput"], "leave it out"),
        (["-U", "me"], "-d postgresql://"),
    ],
    ids=str,
)
def test_an_option_of_others_is_translated(tmp_path, words, instead):
    _, error, said = capture(tmp_path, *words)
    assert isinstance(error, ConfigurationError), said
    assert "is no option of" in str(error)
    assert instead in error.hint


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ([], "-d postgresql://localhost"),
        (["-d", URL], "-b localhost:9092"),
        (["-d", URL, "-b", "localhost:9092"], "-r http://localhost:8081"),
    ],
    ids=str,
)
def test_where_others_have_a_default_the_hint_has_it(tmp_path, words, instead):
    _, error, said = capture(tmp_path, *words)
    assert isinstance(error, ConfigurationError), said
    assert instead in error.hint


LONG = "s" * 64


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--slot", ""], "capture.slot (--slot) is empty"),
        (["--slot", "Shop"], '"Shop" cannot name a slot'),
        (["--slot", "shop-1"], '"shop-1" cannot name a slot'),
        (["--slot", LONG], "has 64 bytes"),
        (["--publication", ""], "--publication is empty"),
        (["--publication", "é" * 32], "has 64 bytes"),
        (["--print", "--slot", "s" * 58], "_lines_"),
        (["--into", "/nowhere/changes", "--slot", "s" * 58], "_lines_"),
        (["--topic-prefix", "p" * 236], "with its 236 characters a topic would have 250"),
    ],
    ids=str,
)
def test_a_name_that_a_server_would_cut_or_refuse_is_refused_first(tmp_path, words, says):
    _, error, said = capture(tmp_path, "-d", URL, *places(words), "--no-wait", *words)
    assert isinstance(error, ConfigurationError), said
    assert says in str(error)
    assert error.hint


@pytest.mark.parametrize("name", ["application_name", "dbname", "user"])
def test_so_is_one_in_a_connection_string(name):
    with pytest.raises(ConfigurationError, match=f"{name}: the name .* has 64 bytes"):
        connect(f"host=127.0.0.1 port=1 {name}={LONG}")


def test_names_of_63_bytes_are_taken(tmp_path):
    names = {"slot": LONG[1:], "publication": "é" * 31 + "x", "topic_prefix": "p" * 235}
    overrides = {f"capture.{key}": name for key, name in names.items()}
    taken = load_project(tmp_path, overrides=overrides, needs=[]).capture
    assert (taken.slot, taken.publication, taken.topic_prefix) == tuple(names.values())


@pytest.mark.parametrize("name", ["é" * 29, "a" * 58])
def test_a_group_s_names_are_measured_in_bytes(tmp_path, name):
    (tmp_path / "changelog.toml").write_text("[capture.groups]\nfive_ = ['public.*']\n")
    _, error, said = capture(tmp_path, "-d", URL, *PLACES, "--no-wait", "--publication", name)
    assert "64 bytes" in str(error), said


KCAT = ":PCG:LQM:t:p:b:z:o:eED:K:k:H:Od:qvF:X:c:Tuf:ZlVhs:r:Jm:U"
"""What kcat 1.7.1 says to getopt; -U runs its own unit tests."""


def command(name):
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    found = group.get_command(Context(group), name)
    assert found is not None
    return found


def spellings(name):
    return {each for option in command(name).params for each in option.opts}


@pytest.mark.parametrize("words", [[], ["-e", "exit"], ["--check"]], ids=str)
def test_a_limit_of_excluded_tables_is_refused_where_none_is_excluded(tmp_path, words):
    _, error, said = capture(tmp_path, "-d", URL, *PLACES, "--error-limit", "3", *words)
    assert isinstance(error, ConfigurationError), said
    assert "--error-limit" in str(error)
    assert error.hint == "add --on-error log, or leave it out"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["-T", "segment.ms=1"], "--topic-config"),
        (["-C", "linger.ms=1"], "--kafka-config"),
        (["--limit-rows", "5"], "--limit-rows"),
        (["-e", "log", "--error-limit", "1"], "--on-error, --error-limit"),
        (["--exactly-once"], "--exactly-once"),
        (["--ddl"], "--ddl"),
        (["-f", "avro"], "--output-format avro"),
        (["--primary", URL], "--primary"),
        (["-b", "127.0.0.1:9092", "-r", "http://127.0.0.1:8081"], "--broker, --schema-registry"),
    ],
    ids=str,
)
def test_an_option_of_topics_is_refused_of_lines(tmp_path, words, named):
    _, error, said = capture(tmp_path, "-d", URL, "--print", *words)
    assert isinstance(error, ConfigurationError), said
    assert f"{named} would have no effect" in str(error)


def test_what_a_client_has_for_each_topic_reaches_the_producer_or_is_refused(tmp_path):
    given = {"request.timeout.ms": "5", "queuing.strategy": "fifo", "segment.ms": "7000"}
    overrides = {"capture.topic": given, "capture.producer": {"linger.ms": "1"}}
    found = load_project(tmp_path, overrides=overrides, needs=[]).capture
    assert found.topic == {"segment.ms": "7000"}
    assert found.producer == {
        "request.timeout.ms": "5",
        "queuing.strategy": "fifo",
        "linger.ms": "1",
    }
    for name in ("request.required.acks", "acks", "message.timeout.ms", "partitioner"):
        _, error, said = capture(tmp_path, "-d", URL, *PLACES, "-T", f"{name}=1")
        assert isinstance(error, ConfigurationError), said
        assert f"capture.topic (-T) cannot set {name} (" in str(error)


@pytest.mark.parametrize("name", ["capture", "read", "write"])
def test_no_translated_option_is_one_of_ours(name):
    translating = command(name)
    assert isinstance(translating, TranslatingCommand)
    assert translating.others
    assert translating.others.keys() & spellings(name) == set()


def test_each_letter_of_kcat_is_taken_or_refused_and_the_page_says_which():
    """Its table has a row for each letter, which says `refused` where the command refuses it."""
    page = (Path(__file__).parents[3] / "docs" / "topics.md").read_text()
    rows = [row.split(" | ") for row in page.partition("## From kcat")[2].splitlines()]
    said: dict[str, list[list[str]]] = {}
    for theirs, *ours in (row for row in rows if len(row) == 3):
        for letter in re.findall(r"`(-\w)\b", theirs):
            said.setdefault(letter, []).append(ours)
    letters = {f"-{each}" for each in re.sub("[:U]", "", KCAT)}
    assert said.keys() == letters
    for place, name in enumerate(("read", "write")):
        others = command(name).others
        assert letters - spellings(name) - {"-h"} == others.keys()
        for letter in letters:
            of_ours = [row[place].startswith("refused") for row in said[letter]]
            # One of several meanings of a letter may be refused: -X dump.
            assert any(of_ours) if letter in others else not all(of_ours), (name, letter)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["write", "t", "-T"], "| tee FILE |"),
        (["write", "t", "-qT"], "| tee FILE |"),
        (["write", "t", "-J"], "--json"),
        (["write", "-C", "-t", "t"], "changelog read"),
        (["write", "t", "-f", "%k"], "changelog read"),
        (["write", "t", "-X", "acks=1"], "every replica"),
        (["write", "t", "-X", "topic.partitioner=random"], "keys have to lie"),
        (["write", "t", "-l"], "behind the topic"),
        (["write", "t", "-Z", "--null", "x"], "give one"),
        (["write", "-t", "t", "-H", "=value"], "-H takes name=value"),
        (["write", "t", "no such file"], "nothing was written"),
        (["read", "-P", "-t", "t"], "changelog write"),
        (["read", "-t", "t", "-E"], "brokers"),
        (["read", "t", "-O"], "-f '%o"),
        (["read", "t", "-v"], "--debug"),
        (["read", "t", "-m", "5"], "15 seconds"),
        (["read", "t", "-f", "{key}"], "--format takes it"),
        (["read", "t", "--format", "%k"], "-f takes it"),
        (["read", "t", "-f", "%y"], "%s, %S"),
        (["read", "t", "-J", "--json"], "give one"),
        (["read", "-t", "t", "-J", "-s", "i"], "-f '%k %s"),
        (["read", "t", "-s", "utf8"], "'hB s'"),
        (["read", "-G", "g", "t", "u"], "a command for each"),
        (["read", "-G", "g", "t", "--group", "h"], "one of them"),
        (["read", "t", "-o", "1", "-o", "2"], "one of each"),
        (["read", "t", "-o", "e@1", "--until", "5"], "give one"),
        (["read", "t", "-X", "auto.offset.reset=latest"], "--from"),
        (["read", "t", "-X", "isolation.level=none"], "read_uncommitted"),
        (["read", "t", "-X", "enable.auto.commit=true"], "--group"),
        (["read", "t", "-X", "bootstrap.servers=h:1"], "-b HOST:PORT"),
        (["read", "t", "-X", "schema.registry.url=http://h"], "-r URL"),
        (["read", "t", "-X", "dump"], "-X list"),
        (["read", "t", "-F", "no such file"], "cannot be read"),
        (["read", "-Q", "-t", "t:0"], "orders:0:"),
        (["read", "-L", "-Q"], "one at a time"),
        (["read"], "-t TOPIC"),
    ],
    ids=" ".join,
)
def test_what_is_not_as_in_kcat_is_refused_with_what_to_write(
    tmp_path, monkeypatch, words, instead
):
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, [*words, "-b", "127.0.0.1:1"])
    assert isinstance(ran.exception, ConfigurationError), (ran.output, ran.exception)
    assert instead in one_line(ran.exception)


def test_a_file_of_kcat_s_settings_is_read_as_kcat_reads_it(tmp_path):
    file = tmp_path / "kcat.conf"
    file.write_text("# a comment\n\n  ssl.ca.location = /x\\:y \nacks=all\ntopic.acks=1\n")
    found = given_settings(["acks=all", "topic.metadata.refresh.sparse=true"], str(file))
    assert found == {
        "ssl.ca.location": "/x:y",
        "acks": "all",
        "topic.metadata.refresh.sparse": "true",
    }
    file.write_text("sasl.jaas.config=secret")
    with pytest.raises(ConfigurationError, match="line 1 is a setting of Java's clients") as error:
        given_settings(None, str(file))
    assert "secret" not in one_line(error.value)


@pytest.mark.parametrize("name", ["read", "write", "load", "publish"])
def test_each_command_with_settings_of_the_client_lists_them(name):
    result = CliRunner().invoke(app, [name, "-X", "list"])
    assert (result.exit_code, "queued.max.messages.kbytes" in result.output) == (0, True)
