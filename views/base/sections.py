"""The settings that views read, each declared once: rebuilds, and where the sinks are."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, RootModel

from changelog.runtime.setting import Section, Setting
from replay.base.sections import Kept

_KEPT, _REFUSED = "What is kept", "What is refused"


class VerifyOn(Enum):
    """Where the log is read for a proof."""

    AUTO = "auto"
    DRIVER = "driver"
    CLUSTER = "cluster"


class LockOn(Enum):
    """Where the locks of views are."""

    KAFKA = "kafka"
    LOCAL = "local"


class OnRefusedRow(Enum):
    """Policy for a row that a sink's server refuses."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


class Rebuild(Kept):
    """Settings for rebuilds and for the generations that are kept."""

    subjects: ClassVar[Mapping[str, str]] = {
        "warehouse": _KEPT,
        "on_bad_record": _REFUSED,
        "dbt": "Views",
        "keep": _KEPT,
        "lock": "Locks and proofs",
        "on_refused_row": _REFUSED,
    }
    dbt: Annotated[
        str,
        Setting(
            "The manifest of a dbt project, as `dbt compile` writes it (target/manifest.json), or "
            "that project's folder; the models that dbt stores are views too (docs/dbt.md).",
            "--dbt",
        ),
    ] = ""
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
    follow_rows: Annotated[
        int,
        Field(ge=0),
        Setting(
            "So many rows of a table `--follow` holds on this machine, at most, for rounds without "
            "Spark; where a table has more, Spark makes each round, and a warning says so."
        ),
    ] = 5_000_000
    deletion_vectors: Annotated[
        bool,
        Setting(
            "A refresh marks rows as gone in the files of a view in Delta, in place of writing "
            "all anew; its readers must know deletion vectors."
        ),
    ] = False
    lock: Annotated[
        LockOn,
        Setting(
            "Where a run locks its views: on the topic `_locks` of the log's brokers, so that of "
            "all machines which share the warehouse one works on a view (kafka), or in the "
            "project's folder alone, for those who run everything on one machine (local).",
            "--lock",
        ),
    ] = LockOn.KAFKA
    lock_seconds: Annotated[
        float,
        Field(ge=3, le=1200),
        Setting(
            "After so long another machine takes over the locks of a process that is dead, stands "
            "still, or does not reach the brokers. The same on all machines."
        ),
    ] = 30
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
    on_refused_row: Annotated[
        OnRefusedRow,
        Setting(
            "What a row does that the server of a sink refuses: fail (the default), or quarantine: "
            "that sink's generation goes without it, and the row's key goes to the table _refused "
            "of the warehouse. Search says which row it refuses; for other sinks it is fail.",
            "--on-refused-row",
        ),
    ] = OnRefusedRow.FAIL
    most_refused_rows: Annotated[
        int,
        Field(ge=1, le=10_000),
        Setting("So many rows of a generation may be left out of a sink; with more it fails."),
    ] = 100

    certificate_key: Annotated[
        str,
        Setting(
            "File with an Ed25519 private key in PEM, under the project's folder unless it is "
            "absolute: `rebuild-view --certificate` signs with it (docs/certificate.md)."
        ),
    ] = ""

    @property
    def left_out_at_most(self) -> int:
        """Return the number of rows of a generation that may be left out of a sink."""
        return self.most_refused_rows if self.on_refused_row is OnRefusedRow.QUARANTINE else 0


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


class Iceberg(Section):
    """Where tables of Iceberg are."""

    catalogue: Annotated[
        str,
        Setting(
            "A catalogue by its name in pyiceberg's configuration (`~/.pyiceberg.yaml`, "
            "`PYICEBERG_CATALOG__…` variables); a file of SQLite in the warehouse where it is "
            "empty."
        ),
    ] = ""
    namespace: Annotated[
        str, Setting("The namespace of the tables, each with its view's name.")
    ] = "views"


class Sinks(Section):
    """Where views are served from."""

    section: ClassVar[str] = "sinks"
    search: Search = Search()
    cache: Cache = Cache()
    postgres: Postgres = Postgres()
    topic: Topic = Topic()
    iceberg: Iceberg = Iceberg()


class Told(Enum):
    """Which runs a webhook hears of."""

    FAILURE = "failure"
    ALWAYS = "always"


class Runs(Section):
    """Runs that nobody watches: how long they may take, and who hears of them."""

    section: ClassVar[str] = "runs"
    subjects: ClassVar[Mapping[str, str]] = {"timeout_seconds": "Runs that nobody watches"}
    timeout_seconds: Annotated[
        float | None,
        Field(gt=0),
        Setting(
            "A rebuild that takes longer is ended as by SIGTERM: nothing more is published, what "
            "was built is removed, exit code 1.",
            "--timeout",
        ),
    ] = None
    wait_seconds: Annotated[
        float,
        Field(ge=0),
        Setting(
            "So long a rebuild, a publication or a removal waits for another run of the view to "
            "end, before it ends with 5.",
            "--wait",
        ),
    ] = 0
    on_failure: Annotated[
        str,
        Setting(
            "A command of the shell that a rebuild runs when it failed, with one JSON object on "
            "its standard input.",
            "--on-failure",
        ),
    ] = ""
    webhook: Annotated[
        str,
        Setting("An address that gets that object by POST, tried four times.", secret=True),
    ] = ""
    webhook_on: Annotated[
        Told, Setting("Which rebuilds the webhook hears of: those that failed, or all.")
    ] = Told.FAILURE
    metrics_file: Annotated[
        str,
        Setting(
            "A file that each rebuild writes its metrics to, for the node exporter's textfile "
            "collector; its name ends with `.prom`.",
            "--metrics-file",
        ),
    ] = ""
    push_gateway: Annotated[
        str, Setting("A push gateway of Prometheus that gets them.", secret=True)
    ] = ""


class Planned(BaseModel):
    """A run of `rebuild-view` at certain times."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    cron: Annotated[
        str, Setting("When: minute, hour, day, month, day of the week, such as `0 3 * * *`.")
    ]
    run: Annotated[str, Setting("Options of `rebuild-view`.")] = "--all"
    timezone: Annotated[str, Setting("In which time zone, such as `Europe/Berlin`.")] = "UTC"


class Schedule(RootModel[dict[str, Planned]]):
    """When `rebuild-view schedule` runs what, each by its name."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    section: ClassVar[str] = "schedule"
    root: Annotated[
        dict[str, Planned],
        Setting("What `rebuild-view schedule` runs, each by its name: docs/scheduling.md."),
    ] = Field(default_factory=dict)


class Parameters(RootModel[dict[str, Any]]):
    """Values that views in SQL name."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    section: ClassVar[str] = "parameters"
    root: Annotated[
        dict[str, Any],
        Setting("Values by name; a view in SQL has each as `:name` (docs/sql.md). No secrets."),
    ] = Field(default_factory=dict)
