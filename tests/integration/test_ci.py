"""`.ci/run`: as root it makes an ordinary user of itself, and says nothing behind the tests."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"
MAKEFILE = """
.venv/.ready:
\t@mkdir -p .venv && touch $@
test-root:
\t@echo "root: $$(id -un)"; exit $${ROOT_ENDS:-0}
test:
\t@echo "user: $$(id -un)"; echo "home: $$HOME"; echo "here: $$(git log --format=%s)"
\t@echo "found: $$(command -v python python3 pip java javac cc gcc g++ clang)"
\t@cat committed changed new; test ! -e removed; echo "python: $${PYTHON:-}"
\t@touch written; echo "seen: $$PIP_INDEX_URL $$CHANGELOG_CACHE"
\t@echo "==== 1 passed ===="; exit $${ENDS:-0}
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a make that says how it was started, and changes that are not committed."""
    folder = tmp_path / "checkout"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(SCRIPT, folder / ".ci" / "run")
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / ".gitignore").write_text(".venv\nwritten\n")
    for name in ("committed", "changed", "removed"):
        (folder / name).write_text(f"{name}\n")

    def git(*words):
        who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    (folder / "changed").write_text("otherwise\n")
    (folder / "new").write_text("untracked\n")
    (folder / "removed").unlink()
    return folder


def run(folder, **variables):
    environment = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", **os.environ, **variables}
    ran = subprocess.run(
        [folder / ".ci" / "run"],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    said = dict(line.partition(": ")[::2] for line in ran.stdout.splitlines() if ": " in line)
    return ran, said


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_runs_the_tests_as_an_ordinary_user_and_its_own_before(checkout):
    ran, said = run(checkout, CHANGELOG_CACHE=str(checkout / "cache"))
    assert ran.returncode == 0, ran.stderr
    home = Path(said["home"])
    copy = next(line for line in ran.stderr.splitlines() if line.startswith("ci: the tests run"))
    place = Path(copy.partition(" in ")[2].partition(", with ")[0])
    try:
        assert (said["root"], said["user"]) == ("root", "changelog-ci")
        assert place.is_relative_to(home)
        assert said["found"] == ""
        assert said["here"] == "first"
        assert said["python"]
        assert said["seen"].split() == ["http://127.0.0.1:1/simple"], "the cache is root's"
        assert "committed\notherwise\nuntracked\n" in ran.stdout
        assert ran.stdout.splitlines()[-1] == "==== 1 passed ===="
        assert not (checkout / "written").exists()
        assert {path.owner() for path in place.rglob("*")} == {"changelog-ci"}

        again, said = run(checkout, ENDS="3")
        assert (again.returncode, said["user"]) == (2, "changelog-ci"), "make's code"
        failed, said = run(checkout, ROOT_ENDS="1")
        assert failed.returncode == 2
        assert failed.stdout.splitlines()[-1] == "==== 1 passed ===="
        assert "as root failed" in failed.stderr
    finally:
        for made in place.parent.glob(f"{place.name}*"):
            shutil.rmtree(made) if made.is_dir() else made.unlink()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_where_no_user_can_be_made_root_runs_them_and_says_so(checkout, tmp_path):
    """A `PATH` in which nothing changes the user."""
    few = tmp_path / "bin"
    few.mkdir()
    for name in ("bash", "env", "make", "id", "git", "sh", "cat", "touch", "dirname"):
        found = shutil.which(name)
        assert found is not None
        (few / name).symlink_to(found)
    ran, said = run(checkout, PATH=str(few))
    assert (ran.returncode, said["user"]) == (0, "root"), ran.stderr
    assert "ci: there is no setpriv here; the tests run as root" in ran.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="needs an ordinary user")
def test_an_ordinary_user_just_runs_them(checkout):
    ran, said = run(checkout, ENDS="3")
    assert ran.returncode == 2
    assert "root" not in said
    assert (checkout / "written").exists()
    assert ran.stdout.splitlines()[-1] == "==== 1 passed ===="
