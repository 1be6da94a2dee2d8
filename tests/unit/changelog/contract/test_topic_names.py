"""Names that no topic has are refused before a broker is asked."""

import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError
from changelog.kafka.cluster import Cluster


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "../x", "ä", "a" * 250])
def test_a_name_that_no_topic_has_is_told(name):
    with pytest.raises(ConfigurationError, match="is no name of a topic"):
        Cluster(KafkaConnection(brokers="127.0.0.1:1")).topics(["fine", name])
