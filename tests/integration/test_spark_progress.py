"""A rebuild tells how far Spark is with the tasks that run now."""

import threading
from pathlib import Path

import pytest

from tests.support.wait import wait_until
from views.rebuild.run.spark_tasks import told_tasks

pytestmark = pytest.mark.spark
TASKS = 8
LOOKS_S = 3.0


def test_tasks_are_told_while_they_run(spark, tmp_path):
    folder, heard = str(tmp_path), threading.Event()
    said, done = [], []

    def tell(text):
        said.append(text)
        heard.set()

    def work(number):
        may_end = Path(folder, str(number))
        wait_until(may_end.exists, 120, "the task may end")
        return number

    def run():
        numbers = spark.sparkContext.parallelize(range(TASKS), TASKS)
        done.extend(numbers.map(work).collect())

    job = threading.Thread(target=run)
    with told_tasks(spark, tell):
        job.start()
        # One task ends after the other, with looks between them, until one look tells of it.
        for number in range(TASKS):
            if not heard.is_set():
                heard.wait(LOOKS_S)
            (tmp_path / str(number)).touch()
        job.join()
    assert done == list(range(TASKS))
    assert said
    assert all(text.startswith("Spark: ") and text.endswith(" left") for text in said)
