"""The columns of a view before Spark starts, as far as options of its sinks speak of them."""

import pytest
import sqlglot

from changelog.contract.base.errors import SinkError
from views.base.spark_sql import SparkSql
from views.project.output import outputs
from views.rebuild.plan.shape import shape_of
from views.sinks.search.column_types import properties
from views.sinks.search.options import merged_over

QUERY = "SELECT t.id AS id, named_struct('name', t.name) AS house, t.list AS list FROM t"
DESCRIBED = ["INTEGER", 'STRUCT("name" VARCHAR)', 'STRUCT("n" INTEGER, "in" STRUCT(x DOUBLE[]))[]']


def mapping_of(described):
    query = sqlglot.parse_one(QUERY, read=SparkSql)
    return properties(shape_of(outputs(query, {}) or (), described, query, {}))


@pytest.mark.parametrize(
    "mapping",
    [
        {"house": {"properties": {"name": {"type": "keyword"}}}},
        {"list": {"properties": {"in": {"properties": {"x": {"type": "float"}}}}}},
    ],
)
def test_a_mapping_may_describe_fields_inside_of_objects_and_lists(mapping):
    assert merged_over(mapping_of(DESCRIBED), mapping, "v")


def test_a_field_that_no_object_has_is_refused_before_spark_starts():
    with pytest.raises(SinkError, match='no column for the field "gone"'):
        merged_over(mapping_of(DESCRIBED), {"house": {"properties": {"gone": {}}}}, "v")
