"""A short run of `make sanitize` and `make fuzz`, where a compiler has what they need."""

import shutil
import subprocess
import sys

import pytest

from tests.fuzz.__main__ import fuzz
from tests.fuzz.inputs import CORPUS, changed, corpus, line_of, parsed
from tests.sanitized import PLUGIN, ROOT, NoSanitizersError, compiled
from tests.support.matrix import first

pytestmark = pytest.mark.root
FEW = "compiled and not as_the_model_does"
TARGETS = sorted(path.stem for path in CORPUS.glob("*.txt"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    try:
        return compiled(tmp_path_factory.mktemp("sanitized"))
    except NoSanitizersError as error:
        pytest.skip(f"no sanitizers: {error}")


def test_memory_is_used_within_its_bounds(environment):
    tests = ["tests/unit/changelog/native/test_buffers.py", "tests/property/test_last.py"]
    words = ["-q", "-x", "-p", PLUGIN, "-n", "0", "-k", FEW, *tests]
    # Each process of xdist tells its own what it is.
    inside = {name: text for name, text in environment.items() if "XDIST" not in name}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env=inside,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "passed" in ran.stdout


@pytest.mark.parametrize("seconds", first(1, [0.1, 0.5]))
def test_hostile_bytes_reach_nothing_and_both_ways_say_the_same(environment, seconds):
    assert fuzz(environment, seed=1, seconds=seconds, targets=TARGETS) == ""


def with_defect(tmp_path, name, sound, defective):
    """Compile the library with a line of a source spoilt."""
    native = tmp_path / "changelog" / "native"
    shutil.copytree(ROOT / "changelog" / "native" / "src", native / "src")
    source = native / "src" / name
    assert source.read_text().count(sound) == 1
    source.write_text(source.read_text().replace(sound, defective))
    return compiled(tmp_path / "built", source=tmp_path)


@pytest.mark.matrix
def test_twin_a_size_that_nobody_checks_is_found(environment, tmp_path):
    defective = with_defect(tmp_path, "rows.c", "if (end - at < 4)", "if (end < at)")
    found = fuzz(defective, seed=1, seconds=20, targets=["stream"])
    assert "AddressSanitizer: heap-buffer-overflow" in found
    assert "read_tuple" in found
    assert "the input: stream: " in found


@pytest.mark.matrix
def test_twin_a_header_of_another_name_taken_for_the_position_is_found(environment, tmp_path):
    defective = with_defect(tmp_path, "reader.c", 'strcmp(name, "position") == 0', "name[0] != 0")
    found = fuzz(defective, seed=1, seconds=20, targets=["headers"])
    assert "assert found[0] == found[1]" in found
    assert "the input: headers: " in found


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_are_written_and_changed_as_they_are_read(target):
    from random import Random

    some = corpus(target)
    assert some
    assert [parsed(line_of(each)) for each in some] == some
    first = [changed(each, some, Random(n)) for n, each in enumerate(some)]  # noqa: S311
    again = [changed(each, some, Random(n)) for n, each in enumerate(some)]  # noqa: S311
    assert first == again != some
