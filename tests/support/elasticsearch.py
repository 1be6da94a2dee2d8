"""An Elasticsearch of our own, for what says that it and OpenSearch are asked alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from changelog.stack.base.places import shared_cache_dir
from changelog.stack.download.artifacts import ELASTICSEARCH, OPENSEARCH
from changelog.stack.download.fetch import resolve
from changelog.stack.download.unpack import unpack
from changelog.stack.servers.search import SearchServer


class ElasticServer(SearchServer):
    """A node that is started as ours is, under the names that its settings have there."""

    def prepare(self) -> None:
        super().prepare()
        config = self.work_directory / "config"
        lines = (config / "opensearch.yml").read_text("utf-8")
        lines += 'xpack.security.enabled: "false"\n'
        (config / "elasticsearch.yml").write_text(lines, "utf-8")

    def launch(self):
        ours = super().launch()
        theirs = f"{OPENSEARCH.name}-{OPENSEARCH.version}"
        names = {
            str(shared_cache_dir() / "unpacked" / theirs / theirs): str(_home()),
            "org.opensearch.bootstrap.OpenSearch": "org.elasticsearch.bootstrap.Elasticsearch",
            "-Dopensearch.": "-Des.",
        }
        argv = list(ours.argv)
        for theirs, own in names.items():
            argv = [word.replace(theirs, own) for word in argv]
        argv.insert(1, "-Des.distribution.flavor=default")
        return replace(ours, argv=argv, env={"LIBFFI_TMPDIR": str(self.work_directory / "tmp")})


def _home() -> Path:
    (archive,) = resolve([ELASTICSEARCH])
    name = f"{ELASTICSEARCH.name}-{ELASTICSEARCH.version}"
    return unpack(archive, shared_cache_dir() / "unpacked" / name) / name
