"""The package is built with a C compiler, without one, and with one that is broken.

In each case Python's configuration names a compiler which is not there, and flags for the linker
that the compiler of the wheel refuses, as Debian's Python does.
"""

import ctypes
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from changelog.native import build

LEFT_OVER = f"linux-{platform.machine()}-{sys.implementation.cache_tag}"
ROOT = Path(__file__).parents[2]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "changelog")
DEBIAN = """
import sysconfig
gone = "no-such-gcc"
sysconfig.get_config_vars().update(
    CC=gone, CXX=gone, LDSHARED=f"{gone} -shared -Wl,-Bsymbolic-functions", LDCXXSHARED=gone)
from setuptools import build_meta
print(build_meta.build_wheel("."))
"""
REFUSING = """#!/bin/sh
case " $* " in *-Bsymbolic-functions*) echo "unsupported linker arg" >&2; exit 1;; esac
unset PYTHONPATH  # the compiler may be a wheel's itself: that one, not the package in front of it
PATH={path} exec {command} "$@"
"""
BROKEN = "#!/bin/sh\necho 'cannot execute cc1' >&2\nexit 1\n"
WHEEL = """
import subprocess, sys
assert sys.argv[1] == "cc"
sys.exit(subprocess.call([{command!r}, *sys.argv[2:]]))
"""


def program(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class Machine:
    """A PATH of its own, a wheel in place of ziglang's that may work, a copy of the sources."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        works = " ".join(build.find())  # of this machine, whichever it is
        self._compiler = REFUSING.format(path=os.environ["PATH"], command=works)
        monkeypatch.setenv("PATH", str(self.bin))
        for name in ("CC", "CFLAGS", "LDFLAGS"):
            monkeypatch.delenv(name, raising=False)
        (self.bin / "sh").symlink_to("/bin/sh")
        self._package = folder / "site" / "ziglang"  # in front of one that may be there
        self._package.mkdir(parents=True)
        (self._package / "__init__.py").touch()
        self._install_wheel(BROKEN)
        monkeypatch.setenv("PYTHONPATH", str(self._package.parent))

    def install(self, name, *, works):
        program(self.bin / name, self._compiler if works else BROKEN)

    def install_wheel(self):
        self._install_wheel(self._compiler)

    def _install_wheel(self, text):
        real = program(self.folder / "zig", text)
        (self._package / "__main__.py").write_text(WHEEL.format(command=str(real)))

    def prepare(self):
        """Copy the sources, once; return where they are."""
        sources = self.folder / "sources"
        if sources.exists():
            return sources
        sources.mkdir()
        for name in PARTS:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, sources / name)
        for made in sources.rglob("_core*.so"):
            made.unlink()
        return sources

    def build(self, *, own=True):
        """Build the wheel; return exit code and what was said."""
        sources = self.prepare()
        if not own:
            text = (sources / "pyproject.toml").read_text()
            (sources / "pyproject.toml").write_text(
                text.replace("[tool.setuptools.cmdclass]", "[x]")
            )
        done = subprocess.run(
            [sys.executable, "-c", DEBIAN], cwd=sources, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def unpacked(self):
        (wheel,) = (self.folder / "sources").glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            files.extractall(self.folder / "unpacked")
        return self.folder / "unpacked"

    def way_of(self, folder):
        """Return the module of the class that an unpacked wheel takes."""
        code = "from changelog.native import Fold; print(Fold.__module__)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env={"PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def partition_of_nothing(self):
        """Call a function of the library that the wheel brings."""
        folder = self.unpacked()
        assert self.way_of(folder) == "changelog.native.compiled.fold"
        (found,) = folder.rglob("*.so")
        library = ctypes.CDLL(str(found))
        library.partition_of.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32]
        return library.partition_of(b"", 0, 7)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def is_built(machine):
    code, said = machine.build()
    assert code == 0, said
    assert 0 <= machine.partition_of_nothing() < 7


@pytest.mark.matrix
def test_with_a_compiler(machine):
    machine.install("cc", works=True)
    is_built(machine)


@pytest.mark.matrix
def test_a_wheel_says_which_machines_can_open_its_library(machine):
    machine.install("cc", works=True)
    is_built(machine)
    (wheel,) = (machine.folder / "sources").glob("*.whl")
    (library,) = machine.unpacked().rglob("*.so")
    tag = build.manylinux(library.read_bytes())
    assert tag is None or wheel.stem.endswith(f"-py3-none-{tag}")
    assert tag is None or library.name == "_core.so"


def test_a_compiler_for_another_machine_is_taken_where_that_is_asked_for(machine, monkeypatch):
    machine.install("cc", works=True)
    other = "aarch64" if platform.machine() != "aarch64" else "x86_64"
    monkeypatch.setenv(build.CROSS, other)
    with pytest.raises(build.NoCompilerError, match=f"not of {other}"):
        build.find()
    monkeypatch.setenv(build.CROSS, platform.machine())
    assert build.find() == ["cc"]


@pytest.mark.parametrize(
    ("words", "tag"),
    [
        (b"\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0", "manylinux_2_34_"),
        (b"\0libc.so.6\0libdl.so.2\0GLIBC_2.17\0", "manylinux_2_17_"),
        (b"\0libc.so.6\0libfoo.so.1\0GLIBC_2.17\0", None),
        (b"\0libc.musl-x86_64.so.1\0", None),
        (b"\0libc.so.6\0", None),
    ],
)
def test_a_tag_is_what_a_library_needs_of_the_c_library(words, tag):
    for number, name in ((62, "x86_64"), (183, "aarch64")):
        head = b"\x7fELF\2\1\1" + bytes(9) + b"\3\0" + bytes([number, 0])
        assert build.manylinux(head + words) == (tag and tag + name)
    assert build.manylinux(b"\x7fELF\2\1\1" + bytes(11) + b"\xf3\0" + words) is None


def test_without_one_that_of_the_wheel_is_taken(machine):
    machine.install_wheel()
    is_built(machine)


@pytest.mark.matrix
def test_with_broken_ones_that_of_the_wheel_is_taken(machine):
    machine.install("cc", works=False)
    machine.install("gcc", works=False)
    machine.install_wheel()
    is_built(machine)


def test_without_any_it_warns_once_and_python_is_taken(machine):
    machine.install("gcc", works=False)
    code, said = machine.build()
    assert code == 0, said
    assert said.count("several times slower: no C compiler works here") == 1
    assert "gcc: cannot execute cc1" in said
    assert "hint: install a C compiler" in said
    folder = machine.unpacked()
    assert list(folder.rglob("*.so")) == []
    assert machine.way_of(folder) == "changelog.native.plain.fold"


def test_a_library_of_before_does_not_stay_where_no_compiler_works(machine):
    machine.install("gcc", works=False)
    old = machine.prepare() / "build" / f"lib.{LEFT_OVER}" / "changelog" / "native"
    old.mkdir(parents=True)
    (old / f"_core{EXTENSION_SUFFIXES[0]}").write_bytes(b"of before")
    code, said = machine.build()
    assert code == 0, said
    assert list(machine.unpacked().rglob("*.so")) == []


@pytest.mark.matrix
def test_sources_that_a_working_compiler_does_not_take_are_an_error(machine):
    machine.install("cc", works=True)
    (machine.prepare() / "changelog/native/src/rows.c").write_text("int broken(")
    code, said = machine.build()
    assert code == 1
    assert "rows.c" in said


def test_twin_setuptools_alone_takes_what_python_was_built_with(machine):
    machine.install("cc", works=True)
    code, said = machine.build(own=False)
    assert code == 1
    assert "no-such-gcc" in said


STUB = """#!/bin/sh
echo "{name} $*" >> {log}
case " $* " in {fails}) exit 1;; esac
exit 0
"""


@pytest.mark.parametrize(
    ("python_fails", "uv_fails", "slow"),
    [
        ("none", "none", 0),
        ("*build.py*", "none", 1),  # the wheel's compiler does not work either
        ("*build.py*", "*requirements-compiler.lock*", 1),  # or cannot be had
    ],
)
def test_set_up_goes_on_without_a_compiler(tmp_path, python_fails, uv_fails, slow):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts" / "setup")
    commands = tmp_path / ".venv" / "bin"
    commands.mkdir(parents=True)
    log = tmp_path / "log"
    for name, fails in (("python", python_fails), ("uv", uv_fails)):
        program(commands / name, STUB.format(name=name, log=log, fails=fails))
    done = subprocess.run(
        ["sh", str(tmp_path / "scripts" / "setup")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("several times slower") == slow
    assert "--editable ." in log.read_text().splitlines()[-1], "the package itself is installed"


@pytest.fixture
def adopted(tmp_path):
    """What set-up would set for uv where pip's settings are these: of a user, and variables."""

    def adopted(user="", **environ):
        (tmp_path / "pip").mkdir(exist_ok=True)
        (tmp_path / "pip" / "pip.conf").write_text(user)
        if not user:  # the machine of the test may have settings of its own
            environ["PIP_CONFIG_FILE"] = os.devnull
        ran = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "pip_settings.py")],
            env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), **environ},
            capture_output=True,
            text=True,
            check=True,
        )
        lines = [shlex.split(line)[1] for line in ran.stdout.splitlines()]
        return dict(line.split("=", 1) for line in lines)

    return adopted


def test_set_up_reaches_what_pip_reaches(adopted, tmp_path):
    user = "[global]\nindex-url = https://one/simple\ncert = /ca/user.pem\n"
    assert adopted(user)["UV_DEFAULT_INDEX"] == "https://one/simple"
    assert adopted(user)["SSL_CERT_FILE"] == "/ca/user.pem"
    user += "[install]\nindex-url = https://two/it's\ntrusted-host = a.b c.d\n"
    found = adopted(user)
    assert found["UV_DEFAULT_INDEX"] == "https://two/it's"
    assert found["UV_INSECURE_HOST"] == "a.b c.d"
    found = adopted(
        user,
        PIP_INDEX_URL="https://u:p@variable/simple",
        PIP_EXTRA_INDEX_URL="https://second/simple",
        PIP_PROXY="proxy:3128",
        PIP_CERT=str(tmp_path),
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=f"{tmp_path} /is/not/there",
    )
    assert found["UV_DEFAULT_INDEX"] == "https://u:p@variable/simple"
    assert found["UV_INDEX"] == "https://second/simple"
    assert found["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert found["ALL_PROXY"] == "http://proxy:3128"
    assert found["SSL_CERT_DIR"] == str(tmp_path)
    assert found["UV_FLAGS"] == "--no-index"
    assert found["UV_FIND_LINKS"] == str(tmp_path)


def test_set_up_takes_the_certificates_of_requests_and_leaves_what_is_uvs_own(adopted):
    assert adopted(REQUESTS_CA_BUNDLE="/ca/requests.pem")["SSL_CERT_FILE"] == "/ca/requests.pem"
    own = {"UV_INDEX_URL": "https://uv/simple", "SSL_CERT_FILE": "/ca/uv.pem"}
    found = adopted("[global]\nindex-url = https://machine\ncert = /ca/machine.pem\n", **own)
    assert {"UV_DEFAULT_INDEX", "SSL_CERT_FILE"}.isdisjoint(found)
