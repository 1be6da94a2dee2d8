"""The settings that views read, each declared once: rebuilds, and where the sinks are."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, RootModel

from changelog.runtime.setting import Section, Setting
from replay.base.sections import Kept


class VerifyOn(Enum):
    """Where the log is read for a proof."""

    AUTO = "auto"
    DRIVER = "driver"
    CLUSTER = "cluster"


class Rebuild(Kept):
    """What is kept, and how views are rebuilt."""

    keep: Annotated[
        int,
        Field(ge=1),
        Setting("Generations that stay, the published one counted.", "--keep"),
    ] = 2
    follow_seconds: Annotated[
        float,
        Field(gt=0),
        Setting(
            "Least time between two refreshes of `--follow` that write a view anew; between those "
            "that send its sinks the changed keys alone it is a second, or this if it is less."
        ),
    ] = 5
    follow_look_minutes: Annotated[
        float,
        Field(gt=0),
        Setting(
            "So often `--follow` compares all that is served, where each refresh proves only the "
            "keys that it changes."
        ),
    ] = 15
    deletion_vectors: Annotated[
        bool,
        Setting(
            "A refresh marks rows as gone in the files of a view in Delta, in place of writing "
            "all anew; its readers must know deletion vectors."
        ),
    ] = False
    verify_on: Annotated[
        VerifyOn,
        Setting(
            "Where the log is read for a proof: by tasks of Spark, which run the verifier's own "
            "code (cluster), by this process (driver), or by tasks on a cluster for topics of "
            "`verify_cluster_offsets` and more (auto).",
            "--verify-on",
        ),
    ] = VerifyOn.AUTO
    verify_cluster_offsets: Annotated[
        int,
        Field(ge=1),
        Setting("From so many offsets of a topic on tasks read it for its proof."),
    ] = 5_000_000


class Search(Section):
    """Where search indexes are served from."""

    url: Annotated[str, Setting("OpenSearch.", secret=True)] = ""


class Cache(Section):
    """Where keys and values are served from."""

    url: Annotated[
        str, Setting("Redis or Valkey; redis+cluster:// for a cluster.", secret=True)
    ] = ""


class Postgres(Section):
    """Where tables are served from."""

    url: Annotated[
        str,
        Setting(
            "PostgreSQL, as libpq takes it, TLS parameters too: "
            "`postgresql://user:password@host:5432/database?sslmode=verify-full`.",
            secret=True,
        ),
    ] = ""


class Topic(Section):
    """Where topics of views are: on the brokers that the log is on."""

    prefix: Annotated[
        str,
        Setting(
            "What their names begin with, before a point and the view's; `views`, behind the "
            "prefix of the log's topics and a point, where it is empty."
        ),
    ] = ""


class Sinks(Section):
    """Where views are served from."""

    section: ClassVar[str] = "sinks"
    search: Search = Search()
    cache: Cache = Cache()
    postgres: Postgres = Postgres()
    topic: Topic = Topic()


class Parameters(RootModel[dict[str, Any]]):
    """Values that views in SQL name."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    section: ClassVar[str] = "parameters"
    root: Annotated[
        dict[str, Any],
        Setting("Values by name; a view in SQL has each as `:name` (docs/sql.md). No secrets."),
    ] = Field(default_factory=dict)
