"""A session of Spark on a machine with others: what its settings and its ports let out."""

import socket
import struct

from replay.spark.session import SessionSettings, spark_settings

ANSWER_S = 30


def test_no_setting_of_a_project_lets_queries_read_them():
    extra = {"spark.sql.variable.substitute": "true"}
    for master in ("local[2]", "sc://spark:15002"):
        made = spark_settings(SessionSettings(master=master, extra=extra))
        assert made["spark.sql.variable.substitute"] == "false"


def test_whoever_speaks_to_the_driver_has_to_have_its_secret(spark):
    """Without one it would take any message, and those hold objects of Java."""
    body = b"a stranger's object"
    size = 8 + 1 + 8 + 4 + len(body)
    request = struct.pack(">QBQI", size, 3, 7, len(body)) + body  # Spark's RpcRequest
    port = int(spark.sparkContext.getConf().get("spark.driver.port"))
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
        connection.sendall(request)
        answer = connection.recv(400)
    assert b"Expected SaslMessage" in answer
