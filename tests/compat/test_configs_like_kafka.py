"""Configs as Kafka has them: the same names, defaults, types, sources, synonyms and flags, the same refusals.

Both sides are asked the same; Kafka over the wire, ours through the functions that our handlers answer with.
Addresses and folders of Kafka are those of `TOLD` in what is compared.
"""

import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import unpack
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.static.primitive import i8

from ottla.broker.configs.config_changes import ConfigChange, Operation, changed, check_changes
from ottla.broker.configs.configuration import BrokerConfig, describe_broker, describe_cluster_wide, validate_dynamic
from ottla.broker.configs.group_settings import validate_group_configs
from ottla.broker.configs.topic_settings import describe_topic, validate_topic_configs
from ottla.metadata.configs.broker_configs import BROKER_CONFIGS
from ottla.metadata.configs.definition import DescribedConfig
from ottla.metadata.configs.group_configs import GROUP_CONFIGS
from ottla.metadata.configs.queue_settings import QUEUE_CONFIGS
from ottla.metadata.configs.topic_configs import TOPIC_CONFIGS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import read_response, write_request
from tests.compat.conftest import OVERRIDES
from tests.compat.kafka_broker import KafkaBroker
from tests.compat.kafkas_word import KafkasWord, readable

TIMEOUT_S = 60
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = Operation

NOT_IN_KAFKA = frozenset(
    {
        "org.apache.kafka.sasl.oauthbearer.allowed.urls",  # a system property there
        "sasl.oauthbearer.allow.unverified.audience",  # since 4.4
        "sasl.oauthbearer.allow.unverified.issuer",
        *(f"group.{kind}.assignor.offload.enable" for kind in ("consumer", "share", "streams")),  # since 4.4
        "ssl.kernel.tls.enable",  # Java has no kernel TLS
        "group.streams.topology.description.memory.bytes",  # a plugin keeps descriptions there
    }
)
OTHERWISE_IN_KAFKA = frozenset(
    {
        "sasl.enabled.mechanisms",  # GSSAPI, the default there, is not supported here
        "sasl.mechanism.inter.broker.protocol",
        "sasl.jaas.config",  # read when the broker starts; Kafka reads changes of listeners, too
        "ssl.client.auth",
    }
)

TOLD: Final = KafkaBroker(Path("/kafka"), overrides=OVERRIDES).properties(9092, 9093)
"""What the Kafka of the session is told."""

Row = tuple[str | None, int, int, bool, bool, tuple[tuple[str, str | None, int], ...]]


def ask(kafka: KafkaBroker, api_key: ApiKey, version: int, request: Any) -> Any:
    host, _, port = kafka.bootstrap.partition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection, connection.makefile("rb") as reader:
        connection.sendall(write_request(api_key, version, 1, "test", request))
        (size,) = unpack(">i", reader.read(4))
        return read_response(api_key, version, memoryview(reader.read(size)))[1]


def kafkas(kafka: KafkaBroker, resource_type: int, name: str) -> dict[str, Row]:
    resource = DescribeConfigsResource(resource_type=i8(resource_type), resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
    deadline = time.monotonic() + TIMEOUT_S
    # Kafka's controller creates a topic a moment before its broker knows it.
    while (result := ask(kafka, ApiKey.DESCRIBE_CONFIGS, 4, request).results[0]).error_code != ErrorCode.NONE:
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == result.error_code
        assert time.monotonic() < deadline
    lines = (kafka.folder / "server.properties").read_text().splitlines()
    told = {value: TOLD[name] for name, value in (line.split("=", 1) for line in lines)}
    return {
        each.name: (
            told.get(each.value, each.value),
            each.config_source,
            each.config_type,
            each.read_only,
            each.is_sensitive,
            tuple((synonym.name, told.get(synonym.value, synonym.value), synonym.source) for synonym in each.synonyms),
        )
        for each in sorted(result.configs, key=lambda each: str(each.name))
    }


FOREIGN_PREFIXES = ("confluent.", "errors.deadletterqueue.")
"""Kafka 4.3 does not have these; the second come with 4.4."""


def ours(configs: Iterable[DescribedConfig]) -> dict[str, Row]:
    return {
        each.name: (
            each.value,
            int(each.source),
            int(each.type),
            each.is_read_only,
            each.is_sensitive,
            tuple((synonym.name, synonym.value, int(synonym.source)) for synonym in each.synonyms),
        )
        for each in configs
        if each.name not in QUEUE_CONFIGS and not each.name.startswith(FOREIGN_PREFIXES)
    }


def like_kafka(per_broker: dict[str, str] | None = None) -> BrokerConfig:
    """Our configuration, told what Kafka is told; that sets min.insync.replicas for the cluster by itself."""
    config = BrokerConfig.parse(settings={name: text for name, text in TOLD.items() if name in BROKER_CONFIGS})
    return config.with_dynamic({"min.insync.replicas": "1"}, per_broker or {})


def create(kafka: KafkaBroker, name: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    named = {key.replace("_", "."): text for key, text in configs.items()}
    for created in admin.create_topics([NewTopic(name, num_partitions=1, config=named)]).values():
        created.result(TIMEOUT_S)


def alter(
    kafka: KafkaBroker, resource_type: int, name: str, changes: Sequence[ConfigChange], *, rehearsal: bool
) -> ErrorCode:
    resource = AlterConfigsResource(
        resource_type=i8(resource_type),
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=each.name, config_operation=i8(each.operation), value=each.value) for each in changes
        ),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=rehearsal)
    (response,) = ask(kafka, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return ErrorCode(response.error_code)


def test_a_fresh_topic(kafkas_word: KafkasWord) -> None:
    def ask(kafka: KafkaBroker) -> dict[str, Row]:
        create(kafka, "configs-fresh")
        return kafkas(kafka, TOPIC, "configs-fresh")

    assert kafkas_word(ask) == readable(ours(describe_topic(like_kafka(), {})))


def test_a_topic_with_configs(kafkas_word: KafkasWord) -> None:
    configs = {
        "retention_ms": "+77",
        "cleanup_policy": "compact, delete",
        "min_cleanable_dirty_ratio": "1e-4",
        "preallocate": "TRUE",
        "compression_type": "zstd",
        "segment_ms": "3600000",
        "internal_segment_bytes": "1000",
        "leader_replication_throttled_replicas": "0:1,1:2",
    }

    def ask(kafka: KafkaBroker) -> dict[str, Row]:
        create(kafka, "configs-own", **configs)
        return kafkas(kafka, TOPIC, "configs-own")

    overrides = {name.replace("_", "."): text for name, text in configs.items()}
    assert kafkas_word(ask) == readable(ours(describe_topic(like_kafka(), overrides)))


def test_the_broker(kafkas_word: KafkasWord) -> None:
    described = readable(ours(describe_broker(like_kafka())))
    theirs = kafkas_word(lambda kafka: kafkas(kafka, BROKER, "1"))
    assert 100 < len(described)
    assert set() == NOT_IN_KAFKA & theirs.keys()
    compared = described.keys() - NOT_IN_KAFKA - OTHERWISE_IN_KAFKA
    assert {name: theirs.get(name) for name in compared} == {name: described[name] for name in compared}


def test_the_cluster_wide_configs(kafkas_word: KafkasWord) -> None:
    assert kafkas_word(lambda kafka: kafkas(kafka, BROKER, "")) == readable(ours(describe_cluster_wide(like_kafka())))


def test_dynamic_broker_configs_show_up_in_topics(kafkas_word: KafkasWord) -> None:
    dynamic = {"log.retention.ms": "7200000", "log.cleanup.policy": "compact"}

    def ask(kafka: KafkaBroker) -> dict[str, dict[str, Row]]:
        create(kafka, "configs-dynamic")
        changes = [ConfigChange(name, SET, text) for name, text in dynamic.items()]
        assert ErrorCode.NONE is alter(kafka, BROKER, "1", changes, rehearsal=False)
        try:
            # Kafka follows its own metadata: what it has been told shows up a little later.
            deadline = time.monotonic() + TIMEOUT_S
            while ("7200000", 2) != kafkas(kafka, TOPIC, "configs-dynamic")["retention.ms"][:2]:
                assert time.monotonic() < deadline
            broker = kafkas(kafka, BROKER, "1")
            return {
                "topic": kafkas(kafka, TOPIC, "configs-dynamic"),
                "broker": {name: broker[name] for name in dynamic},
            }
        finally:
            alter(kafka, BROKER, "1", [ConfigChange(name, DELETE, None) for name in dynamic], rehearsal=False)

    theirs, config = kafkas_word(ask), like_kafka(per_broker=dynamic)
    assert theirs["topic"] == readable(ours(describe_topic(config, {})))
    described = ours(describe_broker(config))
    assert theirs["broker"] == readable({name: described[name] for name in dynamic})


def our_code(resource_type: int, config: BrokerConfig, changes: Sequence[ConfigChange]) -> ErrorCode:
    try:
        check_changes(changes)
        if resource_type == TOPIC:
            validate_topic_configs(changed({}, changes, TOPIC_CONFIGS), config)
        elif resource_type == GROUP:
            validate_group_configs(changed({}, changes, GROUP_CONFIGS), config)
        else:
            validate_dynamic(config, changed({}, changes, BROKER_CONFIGS), is_cluster_wide=False)
    except OttlaError as error:
        return error.code
    return ErrorCode.NONE


TOPIC_VALUES: dict[str, list[str | None]] = {
    "retention.ms": ["-2", "-1", "abc", " 77 ", "+78", "1.5", "", "99999999999999999999", None],
    "retention.mss": ["5"],
    "min.cleanable.dirty.ratio": ["1e-4", "0.25d", "1.01", "x"],
    "cleanup.policy": ["", "compact,compact", "COMPACT", "foo", "compact,,delete", "compact, delete"],
    "preallocate": ["TRUE", "yes"],
    "compression.type": ["GZIP", "gzip", "none", "uncompressed"],
    "compression.gzip.level": ["0", "-1", "9", "10"],
    "compression.lz4.level": ["0", "17", "18"],
    "compression.zstd.level": ["-131072", "-131073", "22", "23"],
    "max.message.bytes": ["-1", "0", "2147483648"],
    "segment.bytes": ["100", "1048576"],
    "internal.segment.bytes": ["100"],
    "segment.index.bytes": ["3", "4"],
    "segment.ms": ["0", "1"],
    "segment.jitter.ms": ["-1", "0"],
    "flush.messages": ["0", "1"],
    "index.interval.bytes": ["-1", "0"],
    "file.delete.delay.ms": ["-1", "0"],
    "local.retention.ms": ["-3", "-2"],
    "max.compaction.lag.ms": ["0", "1"],
    "message.timestamp.type": ["createtime", "LogAppendTime"],
    "message.timestamp.after.max.ms": ["-1", "0"],
    "min.insync.replicas": ["0", "1"],
    "remote.storage.enable": ["true", "false"],
    "remote.log.copy.disable": ["true"],
    "leader.replication.throttled.replicas": ["*", "0:1,1:2", "x", "", "0:1,0:1", "*,0:1"],
}

TOPIC_CHANGES: list[list[ConfigChange]] = [
    *([ConfigChange(name, SET, text)] for name, texts in TOPIC_VALUES.items() for text in texts),
    [ConfigChange("min.compaction.lag.ms", SET, "9"), ConfigChange("max.compaction.lag.ms", SET, "5")],
    [ConfigChange("cleanup.policy", APPEND, "compact")],
    [ConfigChange("cleanup.policy", APPEND, "zzz")],
    [ConfigChange("cleanup.policy", SUBTRACT, "zzz")],
    [ConfigChange("cleanup.policy", APPEND, None)],
    [ConfigChange("retention.ms", APPEND, "5")],
    [ConfigChange("retention.ms", SUBTRACT, "5")],
    [ConfigChange("nope", APPEND, "5")],
    [ConfigChange("nope", DELETE, None)],
    [ConfigChange("retention.ms", DELETE, "5")],
    [ConfigChange("retention.ms", SET, "5"), ConfigChange("retention.ms", SET, "6")],
    [ConfigChange("retention.ms", SET, "5"), ConfigChange("flush.ms", SET, "x")],
    [],
]

BROKER_CHANGES: list[list[ConfigChange]] = [
    [ConfigChange("num.partitions", SET, "5")],
    [ConfigChange("num.partitions", DELETE, None)],
    [ConfigChange("log.retention.ms", SET, "abc")],
    [ConfigChange("log.retention.ms", SET, "-5")],
    [ConfigChange("log.retention.ms", SET, None)],
    [ConfigChange("min.insync.replicas", SET, "0")],
    [ConfigChange("message.max.bytes", APPEND, "1")],
    [ConfigChange("log.cleanup.policy", APPEND, "compact")],
    [ConfigChange("leader.replication.throttled.rate", SET, "1000")],
    [ConfigChange("max.connections", SET, "5"), ConfigChange("max.connections", SET, "6")],
    [ConfigChange("nope", DELETE, None)],
    [ConfigChange("nope", SET, "5")],
    [ConfigChange("retention.ms", SET, "5")],
]

GROUP_CHANGES: list[list[ConfigChange]] = [
    *(
        [ConfigChange(f"{kind}.{name}", SET, text)]
        for kind in ("consumer", "share", "streams")
        for name, texts in {
            "session.timeout.ms": ("1", "44999", "45000", "60000", "60001", "x"),
            "heartbeat.interval.ms": ("1", "4999", "5000", "15000", "15001", "x"),
            "assignment.interval.ms": ("-1", "0", "15000", "15001"),
        }.items()
        for text in texts
    ),
    [ConfigChange("consumer.heartbeat.interval.ms", DELETE, None)],
    [ConfigChange("nope", SET, "5")],
    [ConfigChange("nope", DELETE, None)],
]


def show(changes: Sequence[ConfigChange]) -> str:
    return ", ".join(f"{Operation(each.operation).name} {each.name} {each.value!r}" for each in changes)


def test_a_topic_takes_and_refuses_the_same(kafkas_word: KafkasWord) -> None:
    def ask(kafka: KafkaBroker) -> dict[str, ErrorCode]:
        create(kafka, "configs-asked")
        return {show(each): alter(kafka, TOPIC, "configs-asked", each, rehearsal=True) for each in TOPIC_CHANGES}

    config = like_kafka()
    assert kafkas_word(ask) == readable({show(each): our_code(TOPIC, config, each) for each in TOPIC_CHANGES})


def test_a_broker_takes_and_refuses_the_same(kafkas_word: KafkasWord) -> None:
    def ask(kafka: KafkaBroker) -> dict[str, ErrorCode]:
        return {show(each): alter(kafka, BROKER, "1", each, rehearsal=True) for each in BROKER_CHANGES}

    config = like_kafka()
    assert kafkas_word(ask) == readable({show(each): our_code(BROKER, config, each) for each in BROKER_CHANGES})


def test_a_group_takes_and_refuses_the_same(kafkas_word: KafkasWord) -> None:
    def ask(kafka: KafkaBroker) -> dict[str, ErrorCode]:
        return {show(each): alter(kafka, GROUP, "configs-asked", each, rehearsal=True) for each in GROUP_CHANGES}

    config = like_kafka()
    assert kafkas_word(ask) == readable({show(each): our_code(GROUP, config, each) for each in GROUP_CHANGES})
