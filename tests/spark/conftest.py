"""One Spark session for all tests of this folder, and the brokers that they read from: Ottla, and Apache Kafka."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ottla.registry.serde import RegistryClient
from ottla.spark.launch.session import build_session
from ottla.testing import ProcessBroker
from tests.spark.class_archive import class_archive
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m -XX:+UseSerialGC"
"""JVMs live for seconds or minutes here: the optimizing compiler takes half of their CPU time."""
ARCHIVE_OPTIONS = "-XX:SharedArchiveFile={} -Xlog:cds=off -Xlog:cds+dynamic=off"
"""Without a word to those that the archive does not fit: Kafka, and the Java that comes as a wheel."""

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.stopTimeout": "60s",
}
KEEP_ALL = {"log.retention.ms": "-1"}
"""Some records have old timestamps: retention would delete them when the broker looks, every five minutes."""


@pytest.fixture(scope="session", autouse=True)
def quick_jvms() -> Iterator[None]:
    """All JVMs that the tests start, and those that their processes start, have these options."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JDK_JAVA_OPTIONS", JVM_OPTIONS)
        environment.setenv("JDK_JAVA_OPTIONS", f"{JVM_OPTIONS} {ARCHIVE_OPTIONS.format(class_archive())}")
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The session; the data source is found by Spark itself."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = build_session(
        "tests", master="local[2]", settings={**SETTINGS, "spark.sql.warehouse.dir": str(warehouse)}
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessBroker]:
    """A broker of ours in a process of its own, with a schema registry beside it."""
    with ProcessBroker(tmp_path_factory.mktemp("ottla"), KEEP_ALL, registry=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla(broker_process: ProcessBroker) -> Iterator[Topics]:
    """Topics on a broker of ours; tests make topics of their own names."""
    with Topics(broker_process.bootstrap) as topics:
        yield topics


@pytest.fixture(scope="session")
def registry(broker_process: ProcessBroker) -> Iterator[RegistryClient]:
    """A client of the schema registry; its URL is `registry.config.urls[0]`."""
    with RegistryClient(broker_process.wait_registry()) as client:
        yield client


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """Topics on a real Apache Kafka."""
    from tests.compat.kafka_broker import QUICK_START_JVM_OPTIONS, KafkaBroker

    overrides = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1", **KEEP_ALL}
    folder = tmp_path_factory.mktemp("kafka") / "broker"
    with (
        KafkaBroker(folder, overrides=overrides, jvm_options=QUICK_START_JVM_OPTIONS) as broker,
        Topics(broker.bootstrap) as topics,
    ):
        yield topics


@pytest.fixture(params=["ottla", "kafka"])
def topics(request: pytest.FixtureRequest) -> Topics:
    """Topics on Ottla, and then on Kafka: for what must be the same on both."""
    found: Topics = request.getfixturevalue(request.param)
    return found
