"""A table of several sorts of columns, and what a load makes of values, with C and without."""

from changelog.load.encode import Encoder, UnfitRecordError
from changelog.load.plan import Planner
from changelog.load.rules.columns import of_names, parse_columns
from changelog.load.rules.options import LoadForm, Rules, Tombstones
from changelog.load.rules.table import LoadedTable, TableColumn
from tests.support.record_batches import batch_of

TYPES = {
    "id": "bigint",
    "name": "text",
    "attrs": "jsonb",
    "amount": "numeric(12,2)",
    "at": "timestamptz",
    "ok": "boolean",
    "raw": "bytea",
    "größe": "double precision",
    "tags": "_text",
}
_NAMES = ",".join(TYPES)
_BASES = {"id": "int8", "amount": "numeric", "ok": "bool", "größe": "float8"}
_ELEMENTS = {"tags": ("text", 25)}
TABLE = LoadedTable(
    "public.t",
    {
        name: TableColumn(name, kind, _BASES.get(name, kind), 0, _ELEMENTS.get(name))
        for name, kind in TYPES.items()
    },
)


def encoder(*, keys=(), all_known=True, with_c=True):
    rules = Rules(
        columns=of_names(list(TYPES)), keys=keys, tombstones=Tombstones.REFUSE, value=LoadForm.JSON,
        key=LoadForm.TEXT, fields=(), delimiter=b",", all_fields=all_known,
    )  # fmt: skip
    return _encoder(rules, with_c=with_c)


def csv_encoder(*, fields=tuple(TYPES), columns=_NAMES, keys=(), delimiter=b",", with_c=True):
    rules = Rules(
        columns=parse_columns(columns), keys=keys, tombstones=Tombstones.REFUSE, value=LoadForm.CSV,
        key=LoadForm.TEXT, fields=fields, delimiter=delimiter,
    )  # fmt: skip
    return _encoder(rules, with_c=with_c)


def text_encoder(columns, *, keys=(), with_c=True):
    rules = Rules(
        columns=parse_columns(columns), keys=keys, tombstones=Tombstones.REFUSE,
        value=LoadForm.TEXT, key=LoadForm.TEXT,
    )  # fmt: skip
    return _encoder(rules, with_c=with_c)


def _encoder(rules, *, with_c):
    made = Encoder(rules, TABLE, Planner(rules, TABLE, lambda _: ("", ""), None))
    if not with_c:
        made._lines = None
    return made


def lines_of(made, values, keys=None):
    """Return the line of each value by itself, or why it has none."""
    found = []
    for n, value in enumerate(values):
        records = batch_of([value], None if keys is None else [keys[n]])
        try:
            found += [chunk.content for chunk in made.chunks(records)]
        except UnfitRecordError as error:
            found.append(str(error))
    return found
