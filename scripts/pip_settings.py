"""Print, as lines for a shell, the environment that makes uv reach what pip would reach.

uv reads none of pip's settings. A machine behind a company's index or proxy has them for pip: in
files (of the machine, the user, the environment), in variables, or in the system's certificates,
which pip trusts by itself. pip is asked for what it would use rather than its files for what they
say, so that its own order of precedence holds. What is set for uv already stays.
"""

from __future__ import annotations

import os
import shlex
import ssl
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def pip_options() -> Any:  # noqa: ANN401 - pip's own
    """Return the options of `pip install` as this environment's pip would have them."""
    from pip._internal.commands import create_command  # noqa: PLC0415 - only where it is called

    return create_command("install").parse_args([])[0]


def variables(options: Any, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield the variables to set, by the names of uv and of the libraries that it uses."""
    if not any(name in environ for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
        yield "UV_DEFAULT_INDEX", options.index_url or ""
    if not any(name in environ for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL")):
        yield "UV_INDEX", " ".join(options.extra_index_urls)
    if options.extra_index_urls:
        # pip takes the best version of all indexes; hashes keep others out.
        yield "UV_INDEX_STRATEGY", "unsafe-best-match"
    yield "UV_FIND_LINKS", ",".join(link for link in options.find_links if _is_there(link))
    yield "UV_INSECURE_HOST", " ".join(options.trusted_hosts)
    yield "SSL_CLIENT_CERT", options.client_cert or ""
    trusted = options.cert or environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
    trusted = trusted or system_certificates()
    yield "SSL_CERT_DIR" if Path(trusted).is_dir() else "SSL_CERT_FILE", trusted
    # pip takes a proxy without a scheme.
    proxy = options.proxy or ""
    yield "ALL_PROXY", proxy if "://" in proxy or not proxy else f"http://{proxy}"
    # No variable of uv's: scripts/setup gives this to each of its commands.
    yield "UV_FLAGS", "--no-index" if options.no_index else ""


def _is_there(link: str) -> bool:
    # pip passes over a folder that is missing, uv ends.
    return "://" in link or Path(link).exists()


def system_certificates() -> str:
    """Return the file of the certificates that the system trusts, or an empty text."""
    file = ssl.get_default_verify_paths().cafile or ""
    return file if Path(file).is_file() else ""


def main() -> None:
    """Print what is not set yet."""
    for name, value in variables(pip_options(), os.environ):
        if value and not os.environ.get(name):
            sys.stdout.write(f"export {name}={shlex.quote(value)}\n")


if __name__ == "__main__":
    main()
