"""An archive of Spark's classes in the form that Java keeps them: a session opens in half the time.

Java takes it only where it fits: the same Java, and the very jars that it was made of, by their
sizes and times. Elsewhere it reads the jars as before and says nothing. So it is made where Spark
is installed, by a short session (`training`), and lies in the folder of `java_home()` at the path
of the jars: one for each installation of Spark. With a new one those go whose jars are gone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

from changelog.contract.base.errors import StackError
from changelog.stack.base.places import is_root, make_directory
from changelog.stack.download.ivy import pyspark_jars_dir
from changelog.stack.download.jre import archives_of_spark, java_home, spark_archive

_TRAINING = "changelog.stack.download.training"
_TRAINING_S = 300
_ROOM_BYTES = 600 << 20
_DRAFT = ".draft-"
_NONE = "no archive of Spark's classes, sessions open as before"
_OF_SPARK = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "JAVA_", "JDK_", "_JAVA_", "CLASSPATH")
"""Variables that would give the session another class path, or Java other options."""


def keep_classes(jars: Sequence[Path], say: Callable[[str], None]) -> None:
    """Make the archive, if there is none of the installed Spark; what hinders it is said.

    None is made for the user's own Java, which JAVA_HOME names.

    Args:
        jars: those that a session has in addition to Spark's own.
        say: gets a line on what takes so long, or why there is no archive.
    """
    home = java_home()
    if os.environ.get("JAVA_HOME") not in (None, "", str(home)):
        return
    spark = pyspark_jars_dir().resolve()
    archive = spark_archive(home, spark)
    try:
        digest = _digest([*spark.glob("*.jar"), *jars])
        if _is_of(archive, digest):
            return
        if _failed(archive).is_file() and _failed(archive).read_text("utf-8") == digest:
            say(f"{_NONE}: it took too long before; without {_failed(archive)} it is tried again")
            return
        make_directory(archive.parent)
        with FileLock(archive.with_suffix(".lock")):
            if not _is_of(archive, digest):
                say("making an archive of Spark's classes, so that sessions open sooner")
                _remove_useless(home, spark)
                try:
                    _make(home, archive, digest, jars)
                except subprocess.TimeoutExpired:
                    _failed(archive).write_text(digest, "utf-8")
                    raise
    except subprocess.TimeoutExpired:
        say(f"{_NONE}: {_TRAINING_S} s were too short")
    except (OSError, StackError) as error:
        say(f"{_NONE}: {error}")


def _is_of(archive: Path, digest: str) -> bool:
    try:
        return archive.is_file() and _mark(archive).read_text("utf-8") == digest
    except FileNotFoundError:
        return False


def _mark(archive: Path) -> Path:
    return archive.with_suffix(".sha256")


def _failed(archive: Path) -> Path:
    return archive.with_suffix(".failed")


def _digest(jars: Sequence[Path]) -> str:
    """Return a digest of the jars as Java tells them apart, and of the session that loads them."""
    digest = hashlib.sha256(Path(__file__).with_name("training.py").read_bytes())
    for jar in sorted(jars):
        seen = jar.stat()
        digest.update(f"{jar}\n{seen.st_size}\n{int(seen.st_mtime)}\n".encode())
    return digest.hexdigest()


def _make(home: Path, archive: Path, digest: str, jars: Sequence[Path]) -> None:
    free = shutil.disk_usage(archive.parent).free
    if free < _ROOM_BYTES:
        raise StackError(f"{free >> 20} MiB are free at {archive.parent}, of {_ROOM_BYTES >> 20}")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_OF_SPARK)}
    ours = {"JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    # Beside its place: Java, if it outlives a session that was ended, then finds no place to write.
    with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=archive.parent) as folder:
        draft = Path(folder) / archive.name
        ran = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-m", _TRAINING, folder, str(draft), ",".join(map(str, jars))],
            env={**kept, **ours, "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRAINING_S,
            check=False,
        )
        if ran.returncode != 0 or not draft.is_file():
            last = ran.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise StackError(f"its session ended with {ran.returncode}: {last}")
        made_of = Path(folder) / "made-of"
        made_of.write_text(digest, "utf-8")
        for path, place in ((draft, archive), (made_of, _mark(archive))):
            path.chmod(0o644 if is_root() else 0o600)
            with path.open("rb") as file:
                os.fsync(file.fileno())  # Java does not check what is in an archive
            path.replace(place)


def _remove_useless(home: Path, spark: Path) -> None:
    """Remove Javas that are gone, archives of jars that are gone or superseded, and old drafts."""
    for sibling in home.parent.glob("home-*"):
        runtime = sibling / "lib"
        if runtime.is_symlink() and not runtime.exists():
            shutil.rmtree(sibling, ignore_errors=True)
        for archive, jars in archives_of_spark(sibling):
            if not jars.is_dir() or (jars == spark and sibling != home):
                archive.unlink(missing_ok=True)
    for draft in spark_archive(home, spark).parent.glob(f"{_DRAFT}*"):
        shutil.rmtree(draft, ignore_errors=True)
