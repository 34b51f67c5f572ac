"""What the compatibility tests share: one real Kafka broker for the whole session, and logs that Ottla wrote."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat import ottla_logs
from tests.compat.kafka_broker import QUICK_START_JVM_OPTIONS, KafkaBroker


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running Kafka broker with few internal partitions; tests use topics of their own, and leave it running."""
    overrides = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    broker = KafkaBroker(
        tmp_path_factory.mktemp("kafka") / "broker", overrides=overrides, jvm_options=QUICK_START_JVM_OPTIONS
    )
    with broker:
        yield broker


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data dir that Ottla filled and shut down cleanly. Shared: work on a copy to change it."""
    data = tmp_path_factory.mktemp("ottla") / "data"
    ottla_logs.write_all(data)
    return data
