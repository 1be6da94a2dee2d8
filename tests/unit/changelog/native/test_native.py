"""The two ways are alike; the compiled one is taken where it is there."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import cffi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog import native
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.partition import partition_of
from changelog.native import build, choice, headers
from changelog.native.headers import FOLDER, HEADER, api
from changelog.native.records import ROW_OPS, Mask, Read, Record
from tests.support.native_ways import NAMES, needs_c, on
from views import verify

TOLD = """
import logging
logging.basicConfig()
from changelog.native import choice
from changelog.native import Fold
choice.warn_if_slow()
choice.warn_if_slow()
print(Fold.__module__)
"""


def run(way, code=TOLD):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"CHANGELOG_NATIVE": way, "PYTHONPATH": str(FOLDER.parents[1])},
    )


def public(kind):
    found = {
        name: inspect.signature(value) if callable(value) else None
        for name, value in inspect.getmembers(kind)
        if not name.startswith("_") or name in ("__init__", "__len__", "__getitem__")
    }
    # Both are strings: what stands there is the class of its own way.
    return {name: str(signature) for name, signature in found.items() if signature is not None}


@needs_c
@pytest.mark.parametrize(("module", "name"), NAMES)
def test_both_ways_are_called_alike(module, name):
    compiled, plain = (on(way, name) for way in ("compiled", "plain"))
    if inspect.isfunction(compiled):
        assert str(inspect.signature(compiled)) == str(inspect.signature(plain))
        return
    assert public(plain) == public(compiled)


def test_python_is_taken_where_it_is_asked_for_and_that_is_said_once():
    done = run("python")
    assert done.stdout.strip() == "changelog.native.plain.fold"
    assert done.stderr.count("several times slower: CHANGELOG_NATIVE is python") == 1


@needs_c
@pytest.mark.parametrize("way", ["auto", "c", ""])
def test_c_is_taken_where_it_is_there(way):
    done = run(way)
    assert (done.stdout.strip(), done.stderr) == ("changelog.native.compiled.fold", "")


def test_another_way_is_refused():
    with pytest.raises(ConfigurationError, match="rust") as refused:
        choice.why_python("rust")
    assert "auto, c, python" in refused.value.hint


@pytest.fixture
def without_library(monkeypatch):
    monkeypatch.delitem(sys.modules, "changelog.native.compiled.library", raising=False)
    monkeypatch.setattr("importlib.machinery.EXTENSION_SUFFIXES", [".none"])


def test_python_is_taken_where_the_library_is_missing(without_library):
    assert "missing" in choice.why_python("auto")


def test_who_asks_for_c_hears_that_it_is_missing_and_what_to_do(without_library):
    with pytest.raises(ConfigurationError, match="compiled part") as missing:
        choice.why_python("c")
    assert "compiler" in missing.value.hint


@needs_c
@given(st.binary(max_size=40), st.integers(1, 2**31 - 1))
def test_a_key_has_the_same_partition(key, partitions):
    from changelog.native.compiled.library import lib

    assert lib.partition_of(key, len(key), partitions) == partition_of(key, partitions)


@needs_c
def test_the_numbers_of_python_are_those_of_the_library():
    from changelog.native.compiled.library import lib

    assert {each.name: each.value for each in Read} == {
        each.name: getattr(lib, f"READ_{each.name}") for each in Read
    }
    assert {each.name: each.value for each in Mask} == {
        each.name: getattr(lib, f"MASK_{each.name}") for each in Mask
    }
    records = on("compiled", "Records")(1)
    for op in ROW_OPS:
        records.add(Record(b"k", b"v", 5, 5, 5, bytes([op])))
    written = on("compiled", "WrittenPlaces")([(0, 0)])
    records.leave_out_written(0, written)
    assert records.take_counts() == [(bytes([op]), 1, 2) for op in ROW_OPS]


@needs_c
def test_a_library_of_other_declarations_is_not_used():
    from changelog.native.compiled.library import opened, path

    with pytest.raises(ConfigurationError, match="older or newer") as other:
        opened(path(FOLDER), HEADER + b"/* of tomorrow */")
    assert "install" in other.value.hint


@needs_c
def test_what_is_no_library_is_not_used(tmp_path):
    from changelog.native.compiled.library import opened

    (tmp_path / "_core.so").write_text("not this")
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        opened(tmp_path / "_core.so", HEADER)


@needs_c
def test_the_functions_of_the_client_are_found_or_named(tmp_path):
    from changelog.native.compiled.library import ffi, lib, path

    absent = str(tmp_path / "absent.so").encode()
    assert ffi.string(lib.kafka_load(absent)) == absent
    # Any library that has nothing of Kafka's.
    said = lib.kafka_load(str(path(FOLDER)).encode())
    assert ffi.string(said).startswith(b"rd_kafka_")


# Where the package's own sources are, whichever library is open (`make sanitize`).
SOURCES = Path(build.__file__).parent / "src"
STRUCT = re.compile(r"typedef struct (\w+) \{\n((?:    .*;\n)+)\}")
TYPES = {
    "rd_kafka_message": "rd_kafka_message_t",
    "rd_kafka_topic_partition": "rd_kafka_topic_partition_list_t",
    "rd_kafka_partition_list": "rd_kafka_topic_partition_list_t",
}
FIELDS = [
    (struct, field)
    for struct, body in STRUCT.findall((SOURCES / "kafka.h").read_text("ascii"))
    for field in re.findall(r"(\w+);", body)
]


def test_the_structs_are_read():
    assert {struct for struct, _ in FIELDS} == set(TYPES)


@pytest.fixture(scope="module")
def compiler():
    try:
        return build.find()
    except build.NoCompilerError as error:
        pytest.skip(str(error))


def is_alike(compiler, folder, struct, field):
    """Compile what looks at structs, with eight bytes more before a field; return what it says."""
    shutil.copytree(SOURCES, folder / "src")
    header = folder / "src" / "kafka.h"
    before, begin, behind = header.read_text("ascii").partition(f"typedef struct {struct} {{")
    moved, count = re.subn(rf"\n(.*\b{field};)", r"\n    int64_t more;\n\1", behind, count=1)
    assert count == 1
    header.write_text(before + begin + moved, "ascii")
    build.compile_library(compiler, [str(folder / "src" / "kafka.c")], folder / "k.so", ["dl"])
    return looked_at(api().dlopen(str(folder / "k.so")))


def looked_at(library):
    from confluent_kafka import cimpl

    ffi = api()
    said = ffi.new("char[]", 100)
    assert library.kafka_load(cimpl.__file__.encode()) == ffi.NULL
    return library.kafka_is_alike(said, 100), ffi.string(said).decode()


@needs_c
def test_the_structs_of_the_client_are_those_that_c_was_compiled_with():
    from confluent_kafka import libversion

    from changelog.native.compiled import client
    from changelog.native.compiled.library import lib

    client.load()
    assert lib.kafka_version() == libversion()[1]
    assert looked_at(lib) == (1, "")


@pytest.mark.parametrize(("struct", "field"), FIELDS)
def test_twin_a_struct_with_a_field_elsewhere_is_named(compiler, tmp_path, struct, field):
    alike, said = is_alike(compiler, tmp_path, struct, field)
    assert (alike, said) == (0, TYPES[struct])


@needs_c
def test_a_client_of_other_structs_is_refused_before_it_is_used(monkeypatch):
    from changelog.native.compiled import client

    def differs(said, size):
        api().memmove(said, b"rd_kafka_message_t", 18)
        return 0

    library = SimpleNamespace(
        kafka_load=lambda _: api().NULL, kafka_version=lambda: 0x020B00FF, kafka_is_alike=differs
    )
    monkeypatch.setattr(client, "lib", library)
    with pytest.raises(ConfigurationError, match=r"2\.11\.0, .*: rd_kafka_message_t") as refused:
        client.load.__wrapped__()
    assert "CHANGELOG_NATIVE=python" in refused.value.hint


@needs_c
@pytest.mark.parametrize("version", [0x030000FF, 0x010900FF])
def test_a_client_of_another_major_version_is_refused_before_its_structs_are_made(version):
    from changelog.native.compiled.client import check_version

    check_version(0x021001FF)
    with pytest.raises(ConfigurationError, match="those of version 2") as refused:
        check_version(version)
    assert "CHANGELOG_NATIVE=python" in refused.value.hint


@needs_c
def test_a_record_that_is_dropped_is_told_with_its_topic():
    """Code and topic of a message lie where C looks for them."""
    from confluent_kafka import KafkaError

    made = on("compiled", "ProducerHandle")({"bootstrap.servers": "127.0.0.1:1"})
    assert made.send("orders", b"k", b"v", []) == 0
    made.purge()
    made.poll(1)
    error, topic = made.failure()
    assert (error.code(), topic) == (KafkaError._PURGE_QUEUE, "orders")


def test_headers_that_the_build_has_not_parsed_are_parsed(tmp_path, monkeypatch):
    header = b"int32_t twice(int32_t of);\n"
    (tmp_path / "some.h").write_bytes(header)
    monkeypatch.setattr(headers, "_SOURCES", tmp_path)
    assert isinstance(headers.declared("some"), cffi.FFI)  # nothing is there
    headers.write_parsed(tmp_path / "some.h", tmp_path)
    assert not isinstance(headers.declared("some"), cffi.FFI)
    (tmp_path / "some.h").write_bytes(header + b"int32_t thrice(int32_t of);\n")
    assert isinstance(headers.declared("some"), cffi.FFI)  # it is of older declarations
    (tmp_path / "some.declared").write_text("import of_another_cffi\n", encoding="ascii")
    assert isinstance(headers.declared("some"), cffi.FFI)


def test_the_verifier_takes_nothing_of_the_native_part_that_others_read_records_by():
    own = {*native.NAMES["intake"], "IS_COMPILED"}
    taken = {
        name.name: str(path)
        for path in sorted(Path(verify.__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("changelog.native")
        and node.module != "changelog.native.columns"
        for name in node.names
    }
    assert taken.keys() - own == set()
