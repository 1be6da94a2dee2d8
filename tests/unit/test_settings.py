"""One declaration for each setting: file, variable and option say the same thing."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from changelog.cli import app as changelog_app
from changelog.config import Project, every_section, every_setting, load_project, validated
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.joined import CapturedLog
from changelog.contract.rows.relation import TableName
from changelog.reference import page
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.setting import DeclaredSetting, Given, Section, Setting, declared
from changelog.sections import CaptureSettings, Http, Kafka, Postgres, Registry, Sources
from replay.base.sections import Logs, Spark
from views.base.sections import Rebuild, Sinks
from views.cli import app as views_app

SETTINGS = list(every_setting())
WITH_OPTION = [each for each in SETTINGS if each.setting.flags]
LOG = {"events": {"topic": "t", "form": "flat-avro", "key": ["id"]}}
NIGHTLY = {"nightly": {"cron": "0 3 * * *"}}
TABLES: dict[str, Any] = {
    "logs": LOG,
    "schedule": NIGHTLY,
    "capture.mask": {"public.a.b": "hash"},
    "rebuild.values": {"public.a.b": "text"},
    "capture.groups": {"large": ["public.orders"]},
    "sources": {"crm": {"dsn": "other"}},
    "http.tokens": {"phone": {"token": "0123456789abcdef", "topics": ["clicks"]}},
}
NUMBERS = {"capture.snapshot_workers": 64}
TEXTS = {"capture.start_lsn": "0/16B3748", "capture.source": "crm"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for each in SETTINGS:
        monkeypatch.delenv(each.variable, raising=False)
    monkeypatch.delenv("CHANGELOG_MASK_KEY", raising=False)
    return tmp_path


def other(each: DeclaredSetting) -> Any:
    if get_origin(each.kind) is Literal or issubclass(each.shape, Enum):
        enum = each.shape is not str
        choices = [m.value for m in each.shape] if enum else list(get_args(each.kind))
        default = each.default.value if isinstance(each.default, Enum) else each.default
        return next(choice for choice in choices if choice != default)
    if each.shape is dict:
        return TABLES.get(each.name, {"some.name": "5"})
    if each.shape is list:
        return ["insert", "update"]
    if each.shape is bool:
        return not each.default
    if each.shape is str:
        return TEXTS.get(each.name, "other")
    return NUMBERS.get(each.name, each.shape((each.default or 0) + 1000))


def as_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)


def words(each: DeclaredSetting, value: Any) -> list[str]:
    flag = each.setting.flags[0]
    if isinstance(value, bool):
        yes, _, no = flag.partition("/")
        return [yes if value else no]
    if isinstance(value, dict):
        return [word for name, text in value.items() for word in (flag, f"{name}={text}")]
    return [flag, str(value / 1000) if each.setting.seconds else as_text(value)]


def write(folder: Path, each: DeclaredSetting, value: Any) -> None:
    *section, key = each.name.split(".")
    said = json.dumps(value) if not isinstance(value, dict) else inline(value)
    head = f"[{'.'.join(section)}]\n" if section else ""
    (folder / "changelog.toml").write_text(f"{head}{key} = {said}\n", encoding="utf-8")


def inline(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return f"{{ {', '.join(f'{json.dumps(k)} = {inline(v)}' for k, v in value.items())} }}"


def found(project: Project, each: DeclaredSetting) -> Any:
    whole: dict[str, Any] = {
        "postgres.dsn": project.postgres,
        "postgres.primary": project.primary,
        "kafka.brokers": project.kafka.brokers,
        "kafka.options": project.kafka.options,
        "registry.url": project.registry.url,
        "registry.options": project.registry.options,
    }
    if each.name in whole:
        return whole[each.name]
    section, *keys = each.name.split(".")
    value: Any = project.capture
    if section != "capture":
        value = project.section(every_section()[section])  # type: ignore[type-var]
    for key in keys or ["root"]:
        value = getattr(value, key)
    return value


def said_by(section: type[Section], given: list[str]) -> dict[str, object]:
    """Return what a command that takes the section is told by words."""
    told: dict[str, object] = {}
    app = typer.Typer()

    @app.command()
    @takes(Chosen(section))
    def command(*, given: Given) -> None:
        told.update(given)

    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    return told


def load(folder: Path, **overrides: Any) -> Project:
    return load_project(folder, needs=[], **overrides)


@pytest.mark.parametrize("each", SETTINGS, ids=lambda each: each.name)
def test_a_setting_can_be_given_in_each_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch, each: DeclaredSetting
) -> None:
    if each.name == "capture.source":
        monkeypatch.setenv("CHANGELOG_SOURCES", '{"crm": {}, "erp": {}}')
    value, default = other(each), found(load(folder), each)
    write(folder, each, value)
    by_file = found(load(folder), each)
    assert by_file != default
    (folder / "changelog.toml").unlink()
    if each.setting.flags:
        section: Any = every_section()[each.name.partition(".")[0]]
        given = said_by(section, words(each, value))
        assert found(load(folder, overrides=given), each) == by_file
    monkeypatch.setenv(each.variable, as_text(value))
    assert found(load(folder), each) == by_file


@pytest.mark.parametrize(
    ("words", "variable", "file", "kept"),
    [([], "", "", 2), ([], "", "7", 7), ([], "8", "7", 8), (["--keep", "9"], "8", "7", 9)],
)
def test_the_option_counts_before_the_variable_before_the_file(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    variable: str,
    file: str,
    kept: int,
) -> None:
    (folder / "changelog.toml").write_text(f"[rebuild]\nkeep = {file}" if file else "")
    monkeypatch.setenv("CHANGELOG_REBUILD_KEEP", variable)
    project = load(folder, overrides=said_by(Rebuild, words))
    assert project.section(Rebuild).keep == kept


def test_entries_of_a_table_are_put_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "changelog.toml").write_text('[capture.producer]\n"a" = "file"\n"b" = "file"\n')
    monkeypatch.setenv("CHANGELOG_CAPTURE_PRODUCER", '{"b": "variable", "c": "variable"}')
    given = said_by(CaptureSettings, ["-C", "c=option"])
    assert load(folder, overrides=given).capture.producer == {
        "a": "file",
        "b": "variable",
        "c": "option",
    }


def test_the_old_variable_of_the_mask_key_is_asked_last(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHANGELOG_MASK_KEY", "${old}")
    assert load(folder).capture.mask_key == "${old}"
    (folder / "changelog.toml").write_text('[capture]\nmask_key = "file"\n')
    assert load(folder).capture.mask_key == "file"
    monkeypatch.setenv("CHANGELOG_CAPTURE_MASK_KEY", "new")
    assert load(folder).capture.mask_key == "new"


def test_a_reference_that_a_variable_covers_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "changelog.toml").write_text('[postgres]\ndsn = "${NOT_SET_ANYWHERE}"\n')
    monkeypatch.setenv("CHANGELOG_POSTGRES_DSN", "password=a${b}")
    assert load(folder).postgres == "password=a${b}"


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("CHANGELOG_CAPTURE_PARTITIONS", "0", "CHANGELOG_CAPTURE_PARTITIONS: capture.partitions"),
        ("CHANGELOG_SPARK_TASK_MEMORY_MB", "canary", "spark.task_m"),
        ("CHANGELOG_CAPTURE_PRODUCER", "canary", "CHANGELOG_CAPTURE_PRODUCER is no JSON object"),
        ("CHANGELOG_CAPTURE_PRODUCER", '["canary"]', "is no JSON object"),
        ("CHANGELOG_LOGS", '{"a": {"topik": "canary"}}', "logs.a.t"),
        (
            "CHANGELOG_LOGS",
            json.dumps({"a": {**LOG["events"], "delet": "canary"}}),
            r"CHANGELOG_LOGS: logs\.a\.delet: there is no such setting",
        ),
        ("CHANGELOG_CAPTURE_START_LSN", "0-1", "is not an LSN"),
    ],
)
def test_a_variable_that_is_wrong_is_named_without_its_value(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str, says: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigurationError, match=says) as caught:
        load(folder)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("runs.timeout_seconds", 0.0, "--timeout: runs.timeout_seconds: input should be greater"),
        ("capture.partitions", 0, "--partitions: capture.partitions: input should be greater"),
        ("capture.producer", {"b": ["1"]}, "--kafka-config: capture.producer.b: input should be"),
    ],
)
def test_an_option_that_is_wrong_is_named(
    folder: Path, name: str, value: object, says: str
) -> None:
    (folder / "changelog.toml").write_text('[capture]\nproducer = { a = "1" }\n')
    with pytest.raises(ConfigurationError, match=says):
        load(folder, overrides={name: value})


def test_what_the_file_says_wrongly_beside_an_option_is_the_files(folder: Path) -> None:
    (folder / "changelog.toml").write_text('[capture]\nproducer = { a = ["x"] }\n')
    with pytest.raises(ConfigurationError, match=r"changelog\.toml: capture\.producer\.a"):
        load(folder, overrides={"capture.producer": {"b": "1"}})


def test_a_variable_that_is_nearly_one_is_told_and_a_foreign_one_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CHANGELOG_CAPTURE_TABELS", "public.a")
    monkeypatch.setenv("CHANGELOG_KAFKA_SERVICE_HOST", "10.0.0.1")  # as Kubernetes sets it
    with caplog.at_level(logging.WARNING):
        load(folder)
    assert [record.getMessage() for record in caplog.records] == [
        "CHANGELOG_CAPTURE_TABELS is no setting: did you mean CHANGELOG_CAPTURE_TABLES?"
    ]


def test_of_two_names_that_begin_alike_the_right_variable_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "changelog.toml").write_text("[capture]\nmask_key = 5\n")
    monkeypatch.setenv("CHANGELOG_CAPTURE_MASK", '{"a.b.c": "hash"}')
    with pytest.raises(ConfigurationError, match=r"^changelog\.toml: capture\.mask_key"):
        load(folder)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("[sprak]\nmaster = 'x'", "spark"),
        ("[spark]\nmastre = 'x'", "spark.master"),
        ("[sinks.serach]\nurl = 'x'", "sinks.search"),
        ("[rebuild]\nkep = 1", "rebuild.keep"),
    ],
)
def test_keys_of_later_packages_have_the_nearest_one_told(
    folder: Path, text: str, meant: str
) -> None:
    (folder / "changelog.toml").write_text(text)
    with pytest.raises(ConfigurationError, match="there is no such setting") as caught:
        load(folder)
    assert caught.value.hint == f"did you mean {meant}?"


def test_a_log_that_contradicts_itself_is_refused_by_every_command(folder: Path) -> None:
    log = {**LOG["events"], "columns": {"id": "bigint"}}
    (folder / "changelog.toml").write_text(f"logs.events = {inline(log)}")
    with pytest.raises(ConfigurationError, match=r"logs\.events: `columns` are those"):
        load(folder)


def test_now_is_written_down_as_the_moment_that_it_is(folder: Path) -> None:
    def file(beginning: str) -> None:
        log = inline(LOG["events"]).removesuffix("}")
        text = f"logs.events = {log}, beginning = {beginning}}}"
        (folder / "changelog.toml").write_text(text)

    file('"now"')
    with pytest.raises(ConfigurationError, match="another moment at each run") as caught:
        load(folder)
    file((caught.value.hint or "").rpartition(" = ")[2])
    load(folder)  # what the hint says is taken


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('Large = ["public.*"]', '"Large" cannot end the name of a slot'),
        ("large = []", "large has no pattern"),
        (f'{"a" * 60} = ["public.*"]', "has 70 bytes"),
    ],
)
def test_groups_of_tables_can_name_slots(folder: Path, text: str, said: str) -> None:
    (folder / "changelog.toml").write_text(f"[capture.groups]\n{text}\n")
    with pytest.raises(ConfigurationError, match=said):
        load(folder)


@pytest.mark.parametrize(
    "line",
    [
        "temporary_slot = true",
        "create_slot = false",
        "create_publication = false",
        "failover_slot = true",
        'start_lsn = "0/1"',
    ],
)
def test_what_groups_of_tables_cannot_go_with_is_refused(folder: Path, line: str) -> None:
    text = f'[capture]\ngroups.large = ["public.orders"]\n{line}\n'
    (folder / "changelog.toml").write_text(text)
    with pytest.raises(ConfigurationError, match="contradict each other"):
        load(folder)


def test_groups_of_tables_are_in_the_order_of_their_names(folder: Path) -> None:
    text = '[capture]\nslot = "s"\n[capture.groups]\nb = ["public.b"]\na = ["public.a"]\n'
    (folder / "changelog.toml").write_text(text)
    assert list(load(folder).capture.slots.items()) == [("s", "s"), ("s_a", "s_a"), ("s_b", "s_b")]


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"slot": "b"}, "it has `slot` and no `frontier`"),
        ({"frontier": "b._frontier"}, "it has `frontier` and no `slot`"),
        ({"frontier": "f", "slot": "b", "key": ["id"]}, "`key` is what the frontier"),
        ({"key": ["id"]}, "needs `form` and `key`, one of another capture"),
    ],
)
def test_a_log_is_of_another_program_or_of_another_capture(
    folder: Path, said: dict[str, Any], says: str
) -> None:
    file = folder / "changelog.toml"
    file.write_text(f"logs.paid = {inline({'topic': 't', 'frontier': 'b._frontier', 'slot': 'b'})}")
    (log,) = load(folder).section(Logs).all
    assert log == CapturedLog(
        table=TableName("public", "paid"), topic="t", frontier_topic="b._frontier", slot="b"
    )
    file.write_text(f"logs.paid = {inline({'topic': 't', **said})}")
    with pytest.raises(ConfigurationError, match=says):
        load(folder)


INNER = {
    "sources": '{"a": {"dsn": "canary"}}',
    "http.tokens": '{"a": {"token": "canary-0123456789", "topics": ["a"]}}',
}


def test_no_secret_is_shown_when_settings_are_printed_or_dumped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = [each for each in SETTINGS if each.setting.secret]
    assert len(secret) >= 8
    for each in secret:
        table = each.shape is dict
        said = INNER.get(each.name, '{"a": "canary"}')
        monkeypatch.setenv(each.variable, said if table else "canary")
    project = load(folder)
    sections = [project.capture, project.section(Spark), project.section(Sinks)]
    sections += [Postgres(dsn="canary"), Kafka(options={"a": "canary"})]
    assert "canary" not in repr(project.section(Sources))
    assert "canary" not in repr(project.section(Http)) + project.section(Http).model_dump_json()
    assert project.section(Spark).settings == {"a": "canary"}
    shown = [repr(project), *map(repr, sections), *(each.model_dump_json() for each in sections)]
    assert not [text for text in shown if "canary" in text]


def test_a_secret_that_is_not_declared_as_one_is_shown() -> None:
    class Careless(Section):
        token: Annotated[str, Setting("A token.")] = ""

    class Careful(Section):
        token: Annotated[str, Setting("A token.", secret=True)] = ""

    for kind, leaks in ((Careless, True), (Careful, False)):
        made = kind(token="canary")
        assert ("canary" in repr(made)) is ("canary" in made.model_dump_json()) is leaks


def test_no_help_shows_a_value_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in WITH_OPTION:
        monkeypatch.setenv(each.variable, "canary")
    for app, line in ((changelog_app, ["capture", "--help"]), (views_app, ["--help"])):
        done = CliRunner().invoke(app, line)
        assert done.exit_code == 0
        assert "canary" not in done.output


def test_names_and_flags_are_those_of_one_setting() -> None:
    names, variables = [e.name for e in SETTINGS], [e.variable for e in SETTINGS]
    of_views = {"spark", "rebuild", "runs"}
    flags: dict[bool, list[str]] = {True: [], False: []}
    for e in WITH_OPTION:  # of rebuild-view, and of the commands of changelog
        given = [flag for part in e.setting.flags for flag in part.split("/")]
        flags[e.name.partition(".")[0] in of_views] += given
    for each in (names, variables, *flags.values()):
        assert len(each) == len(set(each))
    assert len(WITH_OPTION) >= 30


def test_the_page_names_every_setting_with_what_gives_it() -> None:
    text = page()
    for each in SETTINGS:
        entry = text.partition(f"**`{each.name}`**")[2].partition("\n- **")[0]
        assert each.setting.help in entry
        for given in (*each.setting.flags, each.variable):
            assert f"`{given}`" in entry, each.name


def test_config_help_says_each_setting_of_capture_with_what_gives_it() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "changelog", "capture", "--config-help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    sections = ("postgres.", "kafka.", "registry.", "capture.")
    for each in every_setting():
        if each.name.startswith(sections):
            assert f"\n{each.name}: " in said
            assert each.setting.help in said
            assert all(f"`{given}`" in said for given in (*each.setting.flags, each.variable))
    assert 'capture.on_error: `"exit"` or `"log"`; default `"exit"`' in said


def test_a_section_that_nobody_gave_is_at_its_defaults(folder: Path) -> None:
    project = load(folder)
    assert project.later == {}
    assert project.section(Rebuild) == Rebuild()
    assert project.section(Logs).declared == ()
    assert validated({}) == {}


def all_commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    context = group.make_context("x", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from all_commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_no_command_has_a_short_option_twice() -> None:
    for name, command in all_commands(get_command(changelog_app)):
        letters = Counter(
            spelled
            for option in command.params
            for spelled in {*option.opts, *option.secondary_opts}
            if len(spelled) == 2 and spelled.startswith("-")
        )
        assert [each for each, times in letters.items() if times > 1] == [], name


@pytest.mark.parametrize(
    ("section", "short", "long"),
    [
        (Postgres, ["-d", "host=h"], ["--postgres", "host=h"]),
        (Kafka, ["-b", "h:1"], ["--broker", "h:1"]),
        (Registry, ["-r", "http://h"], ["--schema-registry", "http://h"]),
        (
            CaptureSettings,
            [
                *("-s", "s", "-f", "json", "-u", "-p", "pre", "-e", "log", "-x"),
                *("-C", "a=1", "-T", "b=2"),
            ],
            [
                *("--slot", "s", "--output-format", "json", "--allow-unkeyed"),
                *("--topic-prefix", "pre", "--on-error", "log", "--skip-snapshot"),
                *("--kafka-config", "a=1", "--topic-config", "b=2"),
            ],
        ),
    ],
)
def test_short_options_say_what_the_long_ones_say(
    section: type[Section], short: list[str], long: list[str]
) -> None:
    given = said_by(section, short)
    assert given == said_by(section, long)
    assert {key for key, value in said_by(section, []).items() if value != given[key]} == {
        each.name
        for each in declared(section, section.section)
        if set(each.setting.flags) & set(short)
    }


SOURCES = """
[capture]
topic_prefix = "shop"
tables = ["public.*"]
[sources.crm]
dsn = "host=one"
[sources.erp]
dsn = "host=two"
slot = "other"
topic_prefix = "erp"
tables = ["sales.*"]
"""


def test_a_source_has_what_is_said_of_it_over_what_is_said_of_all(folder: Path) -> None:
    (folder / "changelog.toml").write_text(SOURCES)
    crm, erp = (load(folder, overrides={"capture.source": name}) for name in ("crm", "erp"))
    found = [
        (each.postgres, each.slot, each.topic_prefix, each.capture.tables) for each in (crm, erp)
    ]
    assert found == [
        ("host=one", "crm", "shop.crm", ("public.*",)),
        ("host=two", "other", "erp", ("sales.*",)),
    ]
    assert load(folder, overrides={"capture.source": "crm", "capture.slot": "mine"}).slot == "mine"


@pytest.mark.parametrize(
    ("more", "given", "said"),
    [
        ("", {}, "which of the sources: crm, erp"),
        ("", {"capture.source": "hr"}, 'there is no source "hr"'),
        ("tabels = []", {"capture.source": "crm"}, "sources.erp.tabels: there is no such setting"),
        ('[sources.hr]\ntopic_prefix = "erp"', {"capture.source": "crm"}, 'topic_prefix "erp"'),
    ],
)
def test_sources_that_are_not_clear_are_refused(
    folder: Path, more: str, given: dict[str, str], said: str
) -> None:
    (folder / "changelog.toml").write_text(SOURCES + more)
    with pytest.raises(ConfigurationError, match=said):
        load_project(folder, overrides=given, needs=["brokers"])


def test_topics_that_are_named_need_no_source(folder: Path) -> None:
    (folder / "changelog.toml").write_text(f'kafka.brokers = "one:9092"\n{SOURCES}')
    assert load_project(folder, needs=["brokers"], one_source=False).kafka.brokers == "one:9092"


def test_a_comma_in_double_quotes_is_of_a_name():
    tables = next(each for each in every_setting() if each.name == "capture.tables")
    given = ['public.*, s."a,b"', '"x"",".t,u']
    assert tables.from_option(given) == ["public.*", 's."a,b"', '"x"",".t', "u"]


WRONG: dict[Any, tuple[str, ...]] = {
    bool: ("1", "0.0"),
    int: ("true", "1e3", "5.0", "inf", "nan"),
    float: ("true", "inf", "nan"),
}


@pytest.mark.parametrize(
    ("each", "value"),
    [(each, value) for each in SETTINGS for value in WRONG.get(each.shape, ())],
    ids=lambda given: given.name if isinstance(given, DeclaredSetting) else given,
)
def test_a_value_of_another_type_is_refused_by_name(folder, each, value):
    section, _, key = each.name.rpartition(".")
    (folder / "changelog.toml").write_text(f"[{section}]\n{key} = {value}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"toml: {each.name}: "):
        load(folder)


@pytest.mark.parametrize("each", [each for each in SETTINGS if each.shape in {int, float}])
def test_a_variable_that_is_no_finite_number_is_refused_by_name(folder, monkeypatch, each):
    monkeypatch.setenv(each.variable, "inf")
    with pytest.raises(ConfigurationError, match=f"{each.variable}: {each.name}: "):
        load(folder)


def test_an_option_in_seconds_that_is_no_finite_number_is_refused():
    seconds = next(each for each in SETTINGS if each.setting.seconds)
    with pytest.raises(ConfigurationError, match="--status-interval is no finite number"):
        seconds.from_option(float("inf"))


def folder_there(path):
    path.mkdir()


def utf_16(path):
    path.write_text("[capture]\n", encoding="utf-16")


def nowhere(path):
    path.symlink_to("missing.toml")


def loop(path):
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (folder_there, "is a folder"),
        (utf_16, "is no UTF-8 text"),
        (nowhere, "cannot be read: No such file"),
        (loop, "cannot be read: Too many levels"),
    ],
)
@pytest.mark.parametrize("name", ["changelog.toml", "secret"])
def test_a_file_that_cannot_be_read_is_told_in_a_line(folder, make, said, name):
    (folder / "changelog.toml").write_text("postgres.dsn = '${file:secret}'\n")
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    with pytest.raises(ConfigurationError, match=rf"/{name} {said}"):
        load(folder)


def test_a_file_that_this_user_may_not_read_is_told_in_a_line(folder, monkeypatch):
    # Root reads everything.
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    (folder / "changelog.toml").touch()
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ConfigurationError, match=r"changelog.toml cannot be read: Permission"):
        load(folder)


@pytest.mark.parametrize("prefix", ["../é x", "a b", "shop/eu", "x\n"])
def test_a_prefix_that_no_topic_can_have_is_refused(folder, prefix):
    with pytest.raises(ConfigurationError, match="has characters that no topic has"):
        load(folder, overrides={"capture.topic_prefix": prefix})


def flat(table: dict[str, Any]) -> dict[str, Any]:
    """Return the one value of nested tables, under any name."""
    (value,) = table.values()
    return flat(value) if isinstance(value, dict) and len(value) == 1 else {"": value}
