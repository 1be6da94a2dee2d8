"""The text of a view reaches its tables, and nothing else of the machine that runs it."""

import pytest
from pyspark.errors import AnalysisException

from changelog.contract.rows.relation import TableName
from views.project.query import query
from views.project.spec import TableReference

pytestmark = [pytest.mark.spark]

PLACE = TableReference(TableName("public", "t"), 0, 0, None, qualified=False)


def rows(spark, text):
    frame = query(spark, {PLACE: spark.range(1)}, lambda names: text.format(t=names[PLACE]))
    return [tuple(row) for row in frame.collect()]


def test_variables_in_a_text_are_texts(spark, monkeypatch):
    monkeypatch.setenv("CANARY", "c4nary")  # the JVM has it from this process if it starts now
    texts = ["${env:PATH}", "${system:user.home}", "${spark.app.name}", "${env:CANARY}"]
    listed = ", ".join(f"'{text}'".replace("{", "{{").replace("}", "}}") for text in texts)
    assert rows(spark, f"SELECT {listed} FROM {{t}}") == [tuple(texts)]


def test_no_name_in_a_query_is_a_file(spark, tmp_path):
    file = tmp_path / "lines"
    file.write_text("secret")
    readers = [f"text.`{file}`", f"IDENTIFIER('text.`{file}`')"]
    for reader in readers:
        with pytest.raises(AnalysisException):
            rows(spark, f"SELECT * FROM {{t}}, {reader} AS f")
    # The session itself still knows such names: a user's notebook may use them.
    assert [row.value for row in spark.sql(f"SELECT * FROM {readers[0]}").collect()] == ["secret"]
