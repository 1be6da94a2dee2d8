"""Schemas of Protobuf in text -> descriptors, by protoc, which the extra [protobuf] brings.

protoc runs in a process of its own: its messages are read, and a schema of strangers cannot end
ours. A schema may import Google's own files (`google/protobuf/…`, `google/type/…`) and no other.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from changelog.contract.base.errors import CorruptRecordError

_MOST_S = 60.0
_SHOWN = 300
NAME = "schema.proto"


class UnfitMessageError(ValueError):
    """A document does not fit its message."""


def compiled(text: str, subject: str) -> str:
    """Compile a schema; return its FileDescriptorSet, with its imports, in base64.

    `subject` names the schema for errors.

    Raises CorruptRecordError: it does not compile; ModuleNotFoundError: the extra [protobuf] is not
    installed.
    """
    import google.protobuf  # noqa: PLC0415 - of an extra
    import grpc_tools  # noqa: F401, PLC0415 - the process runs it

    # Beside protobuf lie the files of googleapis-common-protos.
    types = Path(google.protobuf.__file__).parents[2]
    with TemporaryDirectory(prefix="changelog-protoc-") as folder:
        (Path(folder) / NAME).write_text(text, "utf-8", errors="replace")
        words = [f"-I{folder}", f"-I{types}", "--include_imports", "--descriptor_set_out=out", NAME]
        try:
            ran = subprocess.run(  # noqa: S603 - our own words
                [sys.executable, "-m", "grpc_tools.protoc", *words],
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_MOST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CorruptRecordError(f"{subject}: protoc takes too long") from None
        if ran.returncode != 0:
            reason = " ".join(ran.stderr.split()).replace(f"{NAME}:", "")
            raise CorruptRecordError(f"{subject} is no schema of Protobuf: {reason[:_SHOWN]}")
        return base64.b64encode((Path(folder) / "out").read_bytes()).decode()
