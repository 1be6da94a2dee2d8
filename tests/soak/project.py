"""The projects of a storm: one to rebuild, and one for each way to capture."""

import json

from tests.soak.followers import write_project
from tests.soak.source import LANES, notes_of
from tests.support.captured_project import SHORT_LIVED

TABLE_VIEWS = ("clock", "bank", *(notes_of(lane) for lane in LANES))
_KEYS = {"clock": "lane", "bank": "lane, account", "lines": "order_id, no"}
_TOTALS = """-- key: lane
-- sinks: delta
SELECT lane, sum(balance) AS total, count(*) AS accounts FROM public.bank GROUP BY lane
"""


def write_projects(folder, endpoints, prefix, *, followed):
    """Write the projects; the captures' own stand beside that of the views."""
    common = f"""
postgres.dsn = {json.dumps(endpoints.postgres)}
kafka.brokers = {json.dumps(endpoints.brokers)}
registry.url = {json.dumps(endpoints.schema_registry)}
spark.master = "local[2]"
[spark.settings]
"spark.driver.extraJavaOptions" = "{SHORT_LIVED}"
[capture]
slot = "{prefix}"
topic_prefix = "{prefix}"
tables = ["public.*"]
partitions = 2
frontier_interval_ms = 200
status_interval_ms = 1000
snapshot_workers = 1
"""
    for name, more in (("", ""), ("-least", ""), ("-exactly", "exactly_once = true\n")):
        project = folder.with_name(f"{folder.name}{name}")
        project.mkdir()
        (project / "changelog.toml").write_text(common + more, encoding="utf-8")
    if followed:
        write_project(folder.with_name(f"{folder.name}-followed"), common, endpoints)
    (folder / "logs").mkdir()
    (folder / "views").mkdir()
    for view in TABLE_VIEWS:
        add_view(folder, view)
    (folder / "views" / "totals.sql").write_text(_TOTALS, encoding="utf-8")


def add_view(folder, table):
    text = f"-- key: {_KEYS.get(table, 'id')}\n-- sinks: delta\nSELECT * FROM {table}\n"
    (folder / "views" / f"{table}.sql").write_text(text, encoding="utf-8")
