"""What the compatibility tests share: Kafka's word, one real Kafka broker for the whole session, and logs that Ottla
wrote."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat import ottla_logs
from tests.compat.kafka_broker import QUICK_START_JVM_OPTIONS, KafkaBroker
from tests.compat.kafkas_word import Both, KafkasWord, readable, transcript
from tests.compat.metered_broker import MeteredBroker
from tests.compat.ottla_broker import OttlaBroker
from tests.wire.exchange import RawConnection

OVERRIDES = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
"""What the Kafka of the session is told."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """To record Kafka's answers, only the tests run that ask for them."""
    if os.environ.get("OTTLA_KAFKA") == "record":
        items[:] = [item for item in items if "kafkas_word" in getattr(item, "fixturenames", ())]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running Kafka broker with few internal partitions; tests use topics of their own, and leave it running."""
    folder = tmp_path_factory.mktemp("kafka") / "broker"
    with KafkaBroker(folder, overrides=OVERRIDES, jvm_options=QUICK_START_JVM_OPTIONS) as broker:
        yield broker


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaBroker]:
    """A running Ottla broker with its defaults."""
    with OttlaBroker(tmp_path_factory.mktemp("ottla") / "broker") as broker:
        yield broker


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeteredBroker]:
    """A running Ottla broker, and its metrics."""
    with MeteredBroker(tmp_path_factory.mktemp("metered")) as broker:
        yield broker


@pytest.fixture
def kafkas_word(request: pytest.FixtureRequest) -> KafkasWord:
    """What Kafka answers in this test, recorded or asked for."""

    def word(ask: Callable[[Any], object], *, step: str = "", broker: str = "kafka") -> Any:
        answers = transcript(request.path.stem)
        return answers.answer(request.node.name, step, lambda: ask(request.getfixturevalue(broker)))

    return word


@pytest.fixture
def both(kafkas_word: KafkasWord, ottla: OttlaBroker) -> Both:
    """What Kafka answers in a scenario, and what Ottla answers."""

    def run(scenario: Callable[[RawConnection], object]) -> tuple[Any, Any]:
        def ask(broker: KafkaBroker | OttlaBroker) -> object:
            with RawConnection(broker.bootstrap) as connection:
                return scenario(connection)

        return kafkas_word(ask), readable(ask(ottla))

    return run


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data dir that Ottla filled and shut down cleanly. Shared: work on a copy to change it."""
    data = tmp_path_factory.mktemp("ottla") / "data"
    ottla_logs.write_all(data)
    return data


_numbers = itertools.count()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; good for a group too."""
    function: str = getattr(request, "function").__name__  # noqa: B009 - not in the declared type
    return f"{function.removeprefix('test_')}-{next(_numbers)}"
