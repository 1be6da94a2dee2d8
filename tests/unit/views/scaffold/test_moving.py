"""`changelog init --from`: what is translated, what is not, and that nothing goes unsaid.

The inputs are ours, in the forms that pgsync, Debezium and Sequin document.
"""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from changelog.config import validated
from changelog.contract.base.errors import ConfigurationError, ViewError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import column_type
from tests.support.library import schema
from views.postgres.view import in_spark
from views.project.catalog import Catalog
from views.scaffold.cli import init
from views.scaffold.moving import debezium, jdbc, pgsync, sequin
from views.scaffold.moving.account import Account, Outcome, leaves, spelled
from views.scaffold.moving.project import NewProject
from views.scaffold.moving.source import Reference, SourceTable
from views.scaffold.moving.translate import translated
from views.sinks.postgres.options import postgres_options
from views.sinks.search.options import search_options

SECRET = "sesame%open"
SOURCE: dict[str, Any] = {
    "name": "inventory-connector",
    "config": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "tasks.max": "1",
        "database.hostname": "db",
        "database.port": "5432",
        "database.user": "me@home",
        "database.password": SECRET,
        "database.dbname": "shop",
        "database.sslmode": "verify-full",
        "topic.prefix": "dbz",
        "slot.name": "debezium",
        "publication.name": "dbz_publication",
        "publication.autocreate.mode": "filtered",
        "table.include.list": r"public\.orders,public\.item.*",
        "table.exclude.list": "public.item_archive",
        "column.exclude.list": r"public\.orders\.note",
        f"column.mask.hash.SHA-256.with.salt.{SECRET}": r"public\.orders\.email",
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "true",
        "skipped.operations": "none",
        "decimal.handling.mode": "double",
        "heartbeat.interval.ms": "5000",
        "heartbeat.action.query": "UPDATE beat SET at = now()",
        "message.key.columns": "public.notes:code",
        "max.batch.size": "4096",
        "transforms": "unwrap,route",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.drop.tombstones": "false",
        "transforms.route.type": "io.debezium.transforms.ByLogicalTableRouter",
        "transforms.route.topic.regex": ".*",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://registry:8081",
        "converters": "isbn",
        "isbn.type": "org.example.IsbnConverter",
    },
}
SINK: dict[str, Any] = {
    "name": "jdbc-sink",
    "config": {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": "dbz.public.orders,dbz.sales.items",
        "connection.url": "jdbc:postgresql://target:5432/copies",
        "connection.username": "sink",
        "connection.password": SECRET,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "primary.key.fields": "id",
        "schema.evolution": "basic",
        "collection.name.format": "${source.table}",
        "batch.size": "500",
    },
}
SEQUIN: dict[str, Any] = {
    "account": {"name": "acme"},
    "databases": [
        {
            "name": "shop",
            "hostname": "${DB_HOST:-localhost}",
            "database": "shop",
            "password": SECRET,
            "pool_size": 10,
            "slot": {"name": "sequin_slot", "create_if_not_exists": True},
            "publication": {"name": "sequin_pub"},
        }
    ],
    "functions": [
        {"name": "row", "type": "path", "path": "record"},
        {
            "name": "few",
            "type": "transform",
            "code": "def transform(action, record, changes, metadata) do\n"
            '  %{\n    id: record["id"],\n    title: record["name"]\n  }\nend',
        },
        {
            "name": "vip",
            "type": "filter",
            "code": "def filter(action, record, changes, metadata) do\n  # few\n"
            '  record["kind"] == "VIP" and record["gone"] != true\nend',
        },
        {
            "name": "clever",
            "type": "filter",
            "code": "def filter(action, record, changes, metadata) do\n"
            '  String.starts_with?(record["name"], "A")\nend',
        },
    ],
    "sinks": [
        {
            "name": "products",
            "database": "shop",
            "source": {"include_tables": ["public.products"]},
            "transform": "few",
            "filter": "vip",
            "actions": ["insert", "update", "delete"],
            "initial_backfill": True,
            "destination": {
                "type": "elasticsearch",
                "endpoint_url": "https://search:9200",
                "index_name": "products",
                "auth_type": "basic",
                "auth_value": SECRET,
            },
        },
        {
            "name": "cached",
            "database": "shop",
            "source": {"include_tables": ["users"]},
            "transform": "row",
            "filter": "clever",
            "status": "disabled",
            "destination": {"type": "redis_string", "host": "cache", "port": 6379, "tls": True},
        },
        {
            "name": "hook",
            "database": "shop",
            "source": {"include_tables": ["public.events"]},
            "destination": {"type": "webhook", "http_endpoint": "api"},
        },
        {
            "name": "stream",
            "database": "shop",
            "table": "public.changes",
            "destination": {
                "type": "kafka",
                "hosts": "broker:9092",
                "topic": "changes",
                "username": "app",
                "password": SECRET,
                "sasl_mechanism": "scram_sha_256",
            },
        },
    ],
}
TRANSLATORS = {"debezium": debezium, "jdbc": jdbc, "pgsync": pgsync, "sequin": sequin}
INPUTS: dict[str, Any] = {
    "debezium": SOURCE,
    "jdbc": SINK,
    "pgsync": schema("app", "books"),
    "sequin": SEQUIN,
}
TYPES = {
    "countries": {"id": "integer", "name": "text"},
    "cities": {"id": "integer", "name": "text", "country_id": "integer"},
    "houses": {"id": "integer", "name": "text", "is_active": "boolean"},
    "writers": {"id": "integer", "name": "text", "born": "date", "city_id": "integer"},
    "subjects": {"id": "integer", "code": "text"},
    "books": {
        "id": "integer", "isbn": "text", "title": "text", "about": "jsonb", "house_id": "integer"
    },
    "book_writers": {"book_isbn": "text", "writer_id": "integer"},
    "book_subjects": {"book_id": "integer", "subject_id": "integer"},
    "ratings": {"id": "integer", "book_id": "integer", "stars": "integer"},
    "order": {"id": "integer", "book_id": "integer", "price": "numeric(8,2)"},
    "notes": {"id": "integer", "order_id": "integer", "text": "text"},
}  # fmt: skip
KEYS = {"book_writers": ["book_isbn", "writer_id"], "book_subjects": ["book_id", "subject_id"]}
REFERENCES = {
    "cities": [("country_id", "countries", "id")],
    "writers": [("city_id", "cities", "id")],
    "books": [("house_id", "houses", "id")],
    "book_writers": [("book_isbn", "books", "isbn"), ("writer_id", "writers", "id")],
    "book_subjects": [("book_id", "books", "id"), ("subject_id", "subjects", "id")],
    "ratings": [("book_id", "books", "id")],
    "order": [("book_id", "books", "id")],
    "notes": [("order_id", "order", "id")],
}
LIBRARY = {
    f"public.{table}": SourceTable(
        types,
        KEYS.get(table, ["id"]),
        [Reference((a,), f"public.{t}", (b,)) for a, t, b in REFERENCES.get(table, [])],
    )
    for table, types in TYPES.items()
}
_NAMES = {"integer": "int4", "boolean": "bool", "numeric(8,2)": "numeric"}
SCHEMAS = {
    TableName("public", table): {
        name: column_type(_NAMES.get(kind, kind), kind) for name, kind in types.items()
    }
    for table, types in TYPES.items()
}
TABLE_KEYS = {TableName("public", table): tuple(KEYS.get(table, ["id"])) for table in TYPES}


def moved(program: str, content: Any, tables: Any = None) -> tuple[NewProject, Account]:
    account, project = Account("file", content), NewProject()
    TRANSLATORS[program].translate(account, project, tables or {})
    return project, account


def outcomes(account: Account) -> dict[str, Outcome]:
    return {line.key: line.outcome for line in account.lines()}


def runs(tmp_path: Path, *options: str) -> Any:
    app = typer.Typer()
    app.command()(init)
    return CliRunner().invoke(app, [str(tmp_path / "project"), *options])


@pytest.mark.parametrize("program", INPUTS)
def test_each_key_of_a_file_has_a_line(program):
    _, account = moved(program, INPUTS[program])
    keys = [line.key for line in account.lines()]
    for path in leaves(INPUTS[program]):
        above = {spelled(path[:length]) for length in range(1, len(path) + 1)}
        assert above & set(keys), path
    assert not [line for line in account.lines() if "not known here" in line.text]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_key_that_nobody_knows_is_named_wherever_it_stands(data):
    program = data.draw(st.sampled_from(sorted(INPUTS)))
    content = copy.deepcopy(INPUTS[program])
    tables = [content]
    for place in tables:
        inner = place.values() if isinstance(place, dict) else place
        tables += [part for part in inner if isinstance(part, dict | list)]
    place = data.draw(st.sampled_from([part for part in tables if isinstance(part, dict)]))
    place["never.heard"] = "of"
    _, account = moved(program, content)
    path = next(path for path in leaves(content) if path[-1] == "never.heard")
    named = [line for line in account.lines() if line.key == spelled(path)]
    above = {spelled(path[:length]) for length in range(1, len(path))}
    covers = [line for line in account.lines() if line.key in above]
    assert named or covers
    # What a whole part is carried into, or is left with, may hold any key; others are named.
    free = ("setting", "mapping", "replace", "rename", "concat", "functions", "http_endpoints")
    whole = ("account", "destination", "foreign_key")
    if not any(word in map(str, path) for word in (*free, *whole)):
        assert [line.outcome for line in named] == [Outcome.LEFT]


def test_a_translator_that_forgets_a_key_does_not_drop_it():
    account = Account("file", {"carried": 1, "forgotten": {"deep": [1]}})
    account.carried(("carried",), "somewhere")
    assert outcomes(account) == {"carried": Outcome.CARRIED, "forgotten.deep[0]": Outcome.LEFT}


def test_an_index_of_pgsync_is_a_view_that_plans(tmp_path):
    project, account = moved("pgsync", INPUTS["pgsync"], LIBRARY)
    text = project.views["books"]
    assert in_spark(text, SCHEMAS, TABLE_KEYS)
    assert "FILL_IN" not in text
    assert text.startswith("-- key: book_id\n-- sinks: search\n-- dialect: postgres\n")
    options = search_options("books", project.options["books", "search"])
    assert options.properties() == {"book_id": {"type": "long"}, "title": {"type": "keyword"}}
    left = [key for key, way in outcomes(account).items() if way is Outcome.LEFT]
    assert left == []
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "books.sql").write_text(text, encoding="utf-8")
    (spec,) = Catalog.of(tmp_path).load_all()
    assert {str(table) for table in spec.tables} == {f"public.{table}" for table in TYPES}
    assert set(project.settings["capture"]["tables"]) == {f"public.{table}" for table in TYPES}


def test_without_a_source_a_view_of_pgsync_does_not_plan():
    project, account = moved("pgsync", INPUTS["pgsync"])
    with pytest.raises(ViewError, match="FILL_IN"):
        in_spark(project.views["books"], SCHEMAS, TABLE_KEYS)
    lines = [line for line in account.lines() if "FILL_IN" in line.text]
    assert {line.outcome for line in lines} == {Outcome.LEFT}
    assert any("public.books and public.book_writers" in line.text for line in lines)


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        ({"plugins": ["Mine"]}, "[0].plugins", "Python"),
        ({"routing": "isbn"}, "[0].routing", "routing"),
        ({"pipeline": "p"}, "[0].pipeline", "pipeline"),
        ({"mapping": {"gone": {"type": "text"}}}, "[0].mapping.gone", "no such field"),
    ],
)
def test_settings_of_an_index_that_documents_have_no_place_for(change, key, text):
    content = [{**INPUTS["pgsync"][0], **change}]
    _, account = moved("pgsync", content, LIBRARY)
    (line,) = [line for line in account.lines() if line.key == key]
    assert line.outcome is Outcome.LEFT
    assert text in line.text


def test_a_number_without_an_exact_place_in_a_document_is_told():
    tables = copy.deepcopy(LIBRARY)
    tables["public.ratings"].types["stars"] = "double precision"
    tables["public.order"].types["price"] = "numeric"
    project, account = moved("pgsync", INPUTS["pgsync"], tables)
    assert "rating.stars::numeric(18, 6)" in project.views["books"]
    assert "orders.price::numeric(18, 6)" in project.views["books"]
    rounded = [line for line in account.lines() if "rounded to six" in line.text]
    assert [line.outcome for line in rounded] == [Outcome.LEFT, Outcome.LEFT]


def test_two_foreign_keys_between_two_tables_are_for_people_to_choose():
    tables = copy.deepcopy(LIBRARY)
    tables["public.ratings"].references.append(Reference(("id",), "public.books", ("id",)))
    project, account = moved("pgsync", INPUTS["pgsync"], tables)
    assert "FILL_IN" in project.views["books"]
    assert any("2 foreign keys" in line.text for line in account.lines())


def test_a_table_that_is_a_view_at_the_source_is_told():
    content = copy.deepcopy(INPUTS["pgsync"])
    content[0]["nodes"] = {"table": "shown", "base_tables": ["books"], "columns": ["id"]}
    _, account = moved("pgsync", content, LIBRARY)
    assert outcomes(account)["[0].nodes.base_tables"] is Outcome.LEFT
    assert outcomes(account)["[0].nodes.table"] is Outcome.LEFT


def test_a_connector_of_debezium_is_a_capture_with_a_slot_of_its_own():
    project, account = moved("debezium", SOURCE)
    assert project.settings == {
        "postgres": {
            "dsn": "postgresql://me%40home:${DATABASE_PASSWORD}@db:5432/shop?sslmode=verify-full"
        },
        "capture": {
            "slot": "debezium_changelog",
            "heartbeat_table_s": 5.0,
            "envelope": "row",
            "mask": {"public.orders.email": "hash"},
            "topic_prefix": "dbz",
            "tables": ["public.orders", "public.item*"],
            "exclude": ["public.item_archive"],
            "drop_columns": ["public.orders.note"],
            "skip_snapshot": True,
            "output_format": "avro",
        },
        "registry": {"url": "http://registry:8081"},
    }
    left = {key for key, way in outcomes(account).items() if way is Outcome.LEFT}
    assert left == {
        "config.decimal.handling.mode", "config.message.key.columns", "config.max.batch.size",
        "config.transforms.route.type", "config.transforms.route.topic.regex",
        "config.converters", "config.isbn.type",
    }  # fmt: skip


def test_a_pattern_that_is_no_pattern_of_ours_is_not_taken_for_one():
    config = {**SOURCE["config"], "table.include.list": r"public\.(a|b)"}
    project, account = moved("debezium", config)
    assert "tables" not in project.settings["capture"]
    assert outcomes(account)["table.include.list"] is Outcome.LEFT


def test_without_unwrapping_values_are_changes():
    project, _ = moved("debezium", {"connector.class": SOURCE["config"]["connector.class"]})
    assert project.settings["capture"]["envelope"] == "nested"


def test_a_jdbc_sink_is_a_view_of_each_topics_table(tmp_path):
    for name, content in (("source.json", SOURCE), ("sink.json", SINK)):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    # The sink first: it goes by the source all the same.
    texts, _ = translated([tmp_path / "sink.json", tmp_path / "source.json"], None)
    assert texts["views/orders.sql"] == (
        "-- key: id\n-- sinks: postgres\n-- dialect: postgres\nSELECT * FROM public.orders\n"
    )
    assert "FROM sales.items" in texts["views/items.sql"]
    options = json.loads(texts["views/items.postgres.json"])
    assert str(postgres_options("items", options).target("items")) == "public.items"
    written = tomllib.loads(texts["changelog.toml"])
    url = "postgresql://sink:${TARGET_PASSWORD}@target:5432/copies"
    assert written["sinks"]["postgres"]["url"] == url
    assert written["capture"]["tables"] == ["public.orders", "public.item*", "sales.items"]
    assert validated(written)


def test_a_default_of_theirs_that_is_another_here_is_told():
    config = {"connector.class": SINK["config"]["connector.class"], "topics": "orders"}
    project, account = moved("jdbc", config)
    assert project.options["orders", "postgres"] == {
        "mode": "insert", "auto_create": False, "table": "public.orders"
    }  # fmt: skip
    assert any("keeps deleted rows" in line.text for line in account.lines())
    _, account = moved("debezium", {"connector.class": SOURCE["config"]["connector.class"]})
    assert any("TRUNCATE" in line.text for line in account.lines())


def test_topics_by_an_expression_are_those_of_known_tables():
    config = {**SINK["config"], "topics.regex": r"public\.(books|notes)"}
    config.pop("topics")
    project, account = moved("jdbc", config, LIBRARY)
    assert set(project.views) == {"books", "notes"}
    assert outcomes(account)["topics.regex"] is Outcome.CARRIED
    project, account = moved("jdbc", config)
    assert outcomes(account)["topics.regex"] is Outcome.LEFT


def test_a_file_of_sequin_is_views_where_targets_are_states():
    tables = {"public.products": SourceTable({"id": "integer", "name": "text"}, ["id"])}
    project, account = moved("sequin", SEQUIN, tables)
    assert project.settings["postgres"] == {
        "dsn": "postgresql://postgres:${DATABASE_PASSWORD}@${DB_HOST}:5432/shop"
    }
    assert project.settings["capture"] == {
        "slot": "sequin_slot_changelog",
        "tables": ["public.products", "public.users", "public.events", "public.changes"],
    }
    assert project.settings["kafka"]["options"]["sasl.mechanism"] == "SCRAM-SHA-256"
    assert project.settings["sinks.search"] == {"url": "https://${SEARCH_LOGIN}@search:9200"}
    assert project.settings["sinks.cache"] == {"url": "rediss://cache:6379/0"}
    assert project.views["products"].endswith(
        "SELECT id AS id, name AS title FROM public.products\n"
        "WHERE kind = 'VIP' AND gone IS DISTINCT FROM true\n"
    )
    assert project.views["cached"].startswith("-- key: FILL_IN\n-- sinks: cache\n")
    said_of = outcomes(account)
    assert said_of["sinks[1].filter"] is Outcome.LEFT
    assert said_of["sinks[2].destination"] is Outcome.LEFT
    assert said_of["sinks[3].destination.type"] is Outcome.CARRIED


def test_tables_that_one_sink_of_sequin_leaves_out_stay_with_the_others():
    tables = {f"public.{name}": SourceTable({"id": "integer"}, ["id"]) for name in ("a", "b", "c")}
    index, cache = SEQUIN["sinks"][0], SEQUIN["sinks"][1]
    leaves_out = {"include_schemas": ["public"], "exclude_tables": ["b", "public.c"]}
    sinks = [
        {**index, "source": leaves_out},
        {**cache, "name": "cached", "source": {"include_tables": ["b"]}},
    ]
    project, _ = moved("sequin", {"databases": SEQUIN["databases"], "sinks": sinks}, tables)
    assert project.settings["capture"]["tables"] == ["public.a", "public.b"]
    assert "exclude" not in project.settings["capture"]
    reads = {text.partition("FROM ")[2].split()[0] for text in project.views.values()}
    assert reads == {"public.a", "public.b"}
    # Without the source's tables: the settings leave out for all sinks, so only for a single one.
    content = {"databases": SEQUIN["databases"], "sinks": sinks}
    project, account = moved("sequin", content)
    assert "exclude" not in project.settings["capture"]
    assert outcomes(account)["sinks[0].source.exclude_tables"] is Outcome.LEFT
    project, account = moved("sequin", {**content, "sinks": sinks[:1]})
    assert project.settings["capture"]["exclude"] == ["public.b", "public.c"]
    assert outcomes(account)["sinks[0].source.exclude_tables"] is Outcome.CARRIED


def test_several_databases_of_sequin_are_sources_with_passwords_of_their_own():
    base = SEQUIN["databases"][0]
    content = {
        "databases": [{**base, "name": "my.shop"}, {**base, "name": "other"}],
        "sinks": [{**SEQUIN["sinks"][1], "database": "other"}],
    }
    project, account = moved("sequin", content)
    texts = project.settings
    assert "${MY_SHOP_DATABASE_PASSWORD}" in texts["sources.my_shop"]["dsn"]
    assert "${OTHER_DATABASE_PASSWORD}" in texts["sources.other"]["dsn"]
    assert texts["sources.other"]["tables"] == ["public.users"]
    assert texts["capture"] == {"source": "my_shop"}
    assert outcomes(account)["databases"] is Outcome.LEFT
    assert validated(tomllib.loads(project.files()["changelog.toml"]))


@pytest.mark.parametrize("program", INPUTS)
def test_no_secret_is_written_or_printed(program, tmp_path):
    path = tmp_path / "input.json"
    path.write_text(json.dumps(INPUTS[program]), encoding="utf-8")
    result = runs(tmp_path, "--from", str(path))
    assert result.exit_code == 0, result.output
    texts = [file.read_text() for file in (tmp_path / "project").rglob("*") if file.is_file()]
    assert not [text for text in [*texts, result.output] if SECRET in text]
    assert validated(tomllib.loads((tmp_path / "project" / "changelog.toml").read_text()))


def test_the_command_prints_what_it_did_not_carry_and_writes_all(tmp_path):
    path = tmp_path / "connector.json"
    path.write_text(json.dumps(SOURCE), encoding="utf-8")
    result = runs(tmp_path, "--from", str(path), "--json")
    answer = json.loads(result.output)
    account = (tmp_path / "project" / "moved.txt").read_text()
    assert all(line["text"] in account for line in answer["keys"])
    assert {line["outcome"] for line in answer["keys"]} == {*map(str, Outcome)}


def test_properties_and_yaml_are_read_as_json_is(tmp_path):
    lines = [f"debezium.source.{key}={value}" for key, value in SOURCE["config"].items()]
    (tmp_path / "a.properties").write_text("# ours\n" + "\n".join(lines), encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps(SOURCE), encoding="utf-8")
    texts = [translated([tmp_path / name], None)[0] for name in ("a.properties", "a.json")]
    assert texts[0]["changelog.toml"] == texts[1]["changelog.toml"]
    (tmp_path / "a.yaml").write_text(
        "base: &base\n  database: shop\nsinks:\n  - <<: *base\n    name: x\n    table: public.t\n"
        "    destination: {type: redis_string, host: cache}\n",
        encoding="utf-8",
    )
    files, account = translated([tmp_path / "a.yaml"], None)
    assert "FROM public.t" in files["views/x.sql"]
    assert ("base", Outcome.LEFT) in [(line.key, line.outcome) for line in account]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '{"nodes": \n [}', r"a\.json:2: invalid JSON"),
        ("a.json", '{"a": 1, "a": 2}', '"a" stands twice'),
        ("a.yaml", "sinks:\n  - name: a\n bad", r"a\.yaml:3: invalid YAML"),
        (
            "a.yaml",
            "sinks:\n- name: a\n  name: b\n",
            r'a\.yaml:3: invalid YAML: "name" stands twice',
        ),
        ("a.properties", "x=1\nx=2\n", r"a\.properties:2: x stands twice"),
        ("a.json", '{"hello": "world"}', "no configuration that is known"),
        ("a.json", '{"connector.class": "io.x.MySqlConnector"}', "MySqlConnector is not known"),
        ("a.yaml", "just a text", "no configuration that is known"),
        ("a.properties", "x=1\nnonsense\n", r"a\.properties:2"),
        ("a.json", b"\xff\xfe{", "not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(name, text, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigurationError, match=message):
        translated([path], None)
    assert runs(tmp_path, "--from", str(path)).exit_code != 0
    assert not (tmp_path / "project").exists()


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        translated([tmp_path / "none.json"], None)
