"""The config APIs on a real broker: its store, its controller, its image."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.configs.config_changes import Operation
from ottla.broker.configs.configuration import BrokerConfig
from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.config_resources import ConfigSource, ResourceType
from ottla.protocol.messages import read_response, write_response
from tests.broker.running_broker import ask, ask_frame, make_topic, produce
from tests.unit.storage.rig import batch
from tests.wire.exchange import LENGTH

TOPIC, BROKER, LOGGER, METRICS, GROUP = ResourceType
SET, DELETE, APPEND, SUBTRACT = Operation
OK, REFUSED, INVALID_CONFIG = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG

Config = tuple[str, int, str | None]


@asynccontextmanager
async def serving_topic(folder: Path) -> AsyncIterator[Broker]:
    """A broker that has topic t."""
    settings = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "3"}
    async with Broker(BrokerConfig.parse(settings=settings)) as broker:
        await make_topic(broker, "t")
        yield broker


def resource_of(type_: int, name: str, keys: Sequence[str] | None = None) -> dict[str, Any]:
    return {"resource_type": type_, "resource_name": name, "configuration_keys": keys}


async def described(broker: Broker, *resources: dict[str, Any], **include: bool) -> Any:
    """What a client of the newest version reads; those of the others read the same."""
    lowest, highest = SERVED[ApiKey.DESCRIBE_CONFIGS]
    answers = {}
    for version in range(lowest, highest + 1):
        frame = await ask_frame(broker, ApiKey.DESCRIBE_CONFIGS, {"resources": resources, **include}, version)
        correlation_id, response = read_response(ApiKey.DESCRIBE_CONFIGS, version, memoryview(frame))
        assert frame == write_response(ApiKey.DESCRIBE_CONFIGS, version, correlation_id, response)[LENGTH.size :]
        answers[version] = response
    assert [_names(answers[highest])] * len(answers) == [_names(each) for each in answers.values()]
    return answers[highest].results


def _names(response: Any) -> list[tuple[str, list[str]]]:
    return [(result.resource_name, [config.name for config in result.configs]) for result in response.results]


async def describe(broker: Broker, type_: int, name: str, keys: tuple[str, ...] | None = None, **include: bool) -> Any:
    (result,) = await described(broker, resource_of(type_, name, keys), **include)
    return result


async def value_of(broker: Broker, type_: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = (await describe(broker, type_, name, (key,))).configs
    return config.value, config.config_source


async def change(
    broker: Broker, *resources: tuple[int, str, Sequence[Config]], validate_only: bool = False
) -> list[int]:
    changes = [
        {
            "resource_type": type_,
            "resource_name": name,
            "configs": [
                {"name": key, "config_operation": operation, "value": value} for key, operation, value in configs
            ],
        }
        for type_, name, configs in resources
    ]
    request = {"resources": changes, "validate_only": validate_only}
    response = await ask(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
    assert [(type_, name) for type_, name, _ in resources] == [
        (each.resource_type, each.resource_name) for each in response.responses
    ]
    assert [None if int(each.error_code) == OK else str for each in response.responses] == [
        None if each.error_message is None else str for each in response.responses
    ]
    return [int(each.error_code) for each in response.responses]


async def replace(
    broker: Broker, type_: int, name: str, configs: Sequence[tuple[str, str | None]], *, validate_only: bool = False
) -> int:
    pairs = [{"name": key, "value": value} for key, value in configs]
    change = {"resource_type": type_, "resource_name": name, "configs": pairs}
    request = {"resources": [change], "validate_only": validate_only}
    (response,) = (await ask(broker, ApiKey.ALTER_CONFIGS, request)).responses
    return int(response.error_code)


async def test_a_topic_is_described(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:
        everything = await describe(broker, TOPIC, "t")
        assert (OK, "", "t", 57) == (
            int(everything.error_code),
            everything.error_message,
            everything.resource_name,
            len(everything.configs),
        )
        assert {None} == {each.documentation for each in everything.configs}
        assert {()} == {each.synonyms for each in everything.configs}
        assert 57 == len((await describe(broker, TOPIC, "t", ())).configs)

        chosen = await describe(
            broker, TOPIC, "t", ("segment.bytes", "nope"), include_synonyms=True, include_documentation=True
        )
        (config,) = chosen.configs
        assert ("segment.bytes", "1073741824", 5, 3, False, False) == (
            config.name,
            config.value,
            config.config_source,
            config.config_type,
            config.read_only,
            config.is_sensitive,
        )
        assert [("log.segment.bytes", "1073741824", 5)] == [(s.name, s.value, s.source) for s in config.synonyms]
        assert "next one begins" in (config.documentation or "")


async def test_what_cannot_be_described_says_why(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:
        for type_, name, code in [
            (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (BROKER, "2", REFUSED),
            (BROKER, "x", REFUSED),
            (BROKER, "٣", REFUSED),
            (LOGGER, "", REFUSED),
            (LOGGER, "2", REFUSED),
            (METRICS, "", REFUSED),
            (GROUP, "", REFUSED),
            (99, "t", REFUSED),
        ]:
            result = await describe(broker, type_, name)
            assert (name, code, ()) == (result.resource_name, int(result.error_code), result.configs)
            assert result.error_message


async def test_a_groups_configs_are_those_of_the_broker_until_they_are_set(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:

        async def value(name: str) -> tuple[str | None, int]:
            configs = {each.name: each for each in (await describe(broker, GROUP, "some")).configs}
            return configs[name].value, int(configs[name].config_source)

        assert ("45000", ConfigSource.DEFAULT) == await value("share.session.timeout.ms")
        assert ("latest", ConfigSource.DEFAULT) == await value("share.auto.offset.reset")
        changes: list[Config] = [
            ("share.session.timeout.ms", SET, "50000"),
            ("share.auto.offset.reset", SET, "by_duration:PT1H"),
        ]
        assert [OK] == await change(broker, (GROUP, "some", changes))
        assert ("50000", ConfigSource.DYNAMIC_GROUP) == await value("share.session.timeout.ms")
        assert ("by_duration:PT1H", ConfigSource.DYNAMIC_GROUP) == await value("share.auto.offset.reset")
        refused: list[Config] = [
            ("share.session.timeout.ms", SET, "60001"),
            ("share.delivery.count.limit", SET, "1"),
            ("share.auto.offset.reset", SET, "by_duration:1h"),
            ("share.isolation.level", SET, "none"),
            ("session.timeout.ms", SET, "1"),
        ]
        for each in refused:
            assert [INVALID_CONFIG] == await change(broker, (GROUP, "some", [each]))
        assert ["some"] == list(broker.image.group_configs)
        assert [OK] == await change(broker, (GROUP, "some", [(name, DELETE, None) for name, _, _ in changes]))
        assert {} == broker.image.group_configs


async def test_a_resource_is_described_once_however_often_it_is_named(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:
        results = await described(broker, *[resource_of(TOPIC, "t")] * 200)
        assert [OK, *[REFUSED] * 199] == [int(each.error_code) for each in results]
        assert [57, *[0] * 199] == [len(each.configs) for each in results]


async def test_topics_that_set_the_same_share_only_what_is_the_same(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:
        for number in range(4):
            await make_topic(broker, f"t{number}", flush_ms=str(number % 2))
        resources = [
            resource_of(TOPIC, f"t{number}", keys)
            for number, keys in enumerate([("flush.ms",), ("flush.ms",), ("flush.ms",), ("retention.ms",)])
        ]
        results = await described(broker, *resources)
        assert [
            ("t0", "flush.ms", "0"),
            ("t1", "flush.ms", "1"),
            ("t2", "flush.ms", "0"),
            ("t3", "retention.ms", "604800000"),
        ] == [(each.resource_name, each.configs[0].name, each.configs[0].value) for each in results]


async def test_a_topics_configs_are_changed_and_last(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:
        configs: list[Config] = [("retention.ms", SET, "77"), ("cleanup.policy", APPEND, "compact")]
        assert [OK] == await change(broker, (TOPIC, "t", configs))
        assert ("77", 1) == await value_of(broker, TOPIC, "t", "retention.ms")
        assert ("delete,compact", 1) == await value_of(broker, TOPIC, "t", "cleanup.policy")
        assert {"retention.ms": "77", "cleanup.policy": "delete,compact"} == broker.image.topics["t"].configs

        assert [OK] == await change(broker, (TOPIC, "t", [("retention.ms", DELETE, None)]))
        assert ("604800000", 5) == await value_of(broker, TOPIC, "t", "retention.ms")
        assert {"cleanup.policy": "delete,compact"} == broker.image.topics["t"].configs

        assert OK == await replace(broker, TOPIC, "t", [("flush.ms", "5")])
        assert {"flush.ms": "5"} == broker.image.topics["t"].configs
        assert OK == await replace(broker, TOPIC, "t", [])
        assert {} == broker.image.topics["t"].configs


async def test_refused_changes_change_nothing(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:
        assert [OK] == await change(broker, (TOPIC, "t", [("flush.ms", SET, "5")]))
        refused: list[tuple[list[Config], ErrorCode]] = [
            ([("retention.ms", SET, "7"), ("flush.ms", SET, "x")], INVALID_CONFIG),
            ([("retention.mss", SET, "7")], INVALID_CONFIG),
            ([("retention.ms", APPEND, "7")], INVALID_CONFIG),
            ([("retention.ms", SET, None)], REFUSED),
            ([("retention.ms", SET, "7"), ("retention.ms", SET, "8")], REFUSED),
            ([("retention.ms", 9, "7")], REFUSED),
        ]
        for configs, code in refused:
            assert [code] == await change(broker, (TOPIC, "t", configs))
        retention: list[Config] = [("retention.ms", SET, "7")]
        assert [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == await change(broker, (TOPIC, "nope", retention))
        assert [ErrorCode.INVALID_TOPIC_EXCEPTION] == await change(broker, (TOPIC, "a b", retention))
        assert [REFUSED] == await change(broker, (TOPIC, "", retention))
        assert [REFUSED, REFUSED] == await change(broker, (TOPIC, "t", retention), (TOPIC, "t", []))
        assert [REFUSED, INVALID_CONFIG] == await change(broker, (99, "t", retention), (GROUP, "g", retention))
        assert REFUSED == await replace(broker, TOPIC, "t", [("retention.ms", None)])
        assert REFUSED == await replace(broker, TOPIC, "t", [("retention.ms", "1"), ("retention.ms", "2")])
        assert INVALID_CONFIG == await replace(broker, TOPIC, "t", [("retention.ms", "x")])
        assert REFUSED == await replace(broker, LOGGER, "3", [("root", "INFO")])
        assert {"flush.ms": "5"} == broker.image.topics["t"].configs


async def test_one_resource_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:
        assert [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, OK] == await change(
            broker, (TOPIC, "nope", []), (TOPIC, "t", [("flush.ms", SET, "5")])
        )
        assert {"flush.ms": "5"} == broker.image.topics["t"].configs


async def test_a_rehearsal_changes_nothing(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:
        revision = broker.image.revision
        flush: list[Config] = [("flush.ms", SET, "5")]
        assert [OK] == await change(broker, (TOPIC, "t", flush), validate_only=True)
        assert OK == await replace(broker, TOPIC, "t", [("flush.ms", "5")], validate_only=True)
        assert [OK] == await change(broker, (BROKER, "", [("log.retention.ms", SET, "5")]), validate_only=True)
        assert [OK] == await change(broker, (LOGGER, "3", [("ottla.broker", SET, "TRACE")]), validate_only=True)
        assert [INVALID_CONFIG] == await change(broker, (TOPIC, "t", [("flush.ms", SET, "x")]), validate_only=True)
        assert revision == broker.image.revision
        assert 5 != logging.getLogger("ottla.broker").level


async def test_changes_at_the_same_time_are_all_made(tmp_path: Path) -> None:
    names = ["retention.ms", "flush.ms", "segment.ms", "delete.retention.ms", "file.delete.delay.ms"]
    async with serving_topic(tmp_path) as broker:
        codes = await asyncio.gather(*(change(broker, (TOPIC, "t", [(name, SET, "5")])) for name in names))
        assert [[OK]] * len(names) == codes
        assert dict.fromkeys(names, "5") == broker.image.topics["t"].configs


async def test_dynamic_broker_configs_act_and_show_up_in_topics(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:
        assert [OK] == await change(
            broker, (BROKER, "", [("log.retention.ms", SET, "99"), ("message.max.bytes", SET, "8")])
        )
        assert [OK] == await change(broker, (BROKER, "3", [("message.max.bytes", SET, "7")]))
        assert ErrorCode.MESSAGE_TOO_LARGE == (await produce(broker, "t", batch())).error_code
        assert ("7", 2) == await value_of(broker, BROKER, "3", "message.max.bytes")
        assert ("8", 3) == await value_of(broker, BROKER, "", "message.max.bytes")
        assert ("99", 3) == await value_of(broker, TOPIC, "t", "retention.ms")
        assert ("7", 2) == await value_of(broker, TOPIC, "t", "max.message.bytes")
        # One is min.insync.replicas: with eligible leader replicas, it is a config of the cluster.
        assert 3 == len((await describe(broker, BROKER, "")).configs)
        assert ("1", 3) == await value_of(broker, BROKER, "3", "min.insync.replicas")
        assert ("1", 3) == await value_of(broker, TOPIC, "t", "min.insync.replicas")

        assert OK == await replace(broker, BROKER, "", [])
        assert [OK] == await change(broker, (BROKER, "3", [("message.max.bytes", DELETE, None)]))
        assert ("1048588", 5) == await value_of(broker, BROKER, "3", "message.max.bytes")
        assert ("604800000", 5) == await value_of(broker, TOPIC, "t", "retention.ms")
        assert OK == (await produce(broker, "t", batch())).error_code
        assert ("1", 5) == await value_of(broker, BROKER, "3", "num.partitions")


@pytest.mark.parametrize(
    ("name", "config", "code"),
    [
        ("3", ("num.partitions", SET, "5"), REFUSED),
        ("3", ("min.insync.replicas", SET, "2"), INVALID_CONFIG),
        ("3", ("log.retention.ms", SET, "x"), REFUSED),
        ("", ("listeners", SET, "A://:1"), REFUSED),
        ("2", ("log.retention.ms", SET, "5"), REFUSED),
        ("x", ("log.retention.ms", SET, "5"), REFUSED),
        ("3", ("message.max.bytes", APPEND, "5"), INVALID_CONFIG),
        ("3", ("num.partitions", DELETE, None), OK),
    ],
)
async def test_broker_changes_that_kafka_refuses_or_not(
    tmp_path: Path, name: str, config: Config, code: ErrorCode
) -> None:
    async with serving_topic(tmp_path) as broker:
        assert [code] == await change(broker, (BROKER, name, [config]))
        assert {} == broker.image.broker_configs


async def test_a_broker_config_that_is_not_known_is_stored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_topic(tmp_path) as broker:
        for name in ("3", ""):
            with caplog.at_level(logging.WARNING):
                assert [OK] == await change(broker, (BROKER, name, [("num.partition", SET, "5")]))
            (config,) = (await describe(broker, BROKER, name, ("num.partition",))).configs
            assert (None, True) == (config.value, config.is_sensitive)
        expected = (
            "dynamic broker config num.partition has no effect: "
            "Unknown broker config name: num.partition; did you mean num.partitions?"
        )
        assert [expected] == [each.getMessage() for each in caplog.records if "no effect" in each.getMessage()]
        assert [OK] == await change(broker, (BROKER, "3", [("num.partition", DELETE, None)]))
        assert OK == await replace(broker, BROKER, "", [])
        assert {} == broker.image.broker_configs


async def test_the_levels_of_loggers(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:
        name = "ottla.broker.requests.pipeline"
        try:
            assert [OK] == await change(broker, (LOGGER, "3", [(name, SET, "TRACE")]))
            assert ("TRACE", 6) == await value_of(broker, LOGGER, "3", name)
            assert [OK] == await change(broker, (LOGGER, "3", [(name, DELETE, None)]))
            assert logging.NOTSET == logging.getLogger(name).level
            assert [INVALID_CONFIG] == await change(broker, (LOGGER, "3", [(name, SET, "loud")]))
            assert [REFUSED] == await change(broker, (LOGGER, "2", [(name, SET, "INFO")]))
        finally:
            logging.getLogger(name).setLevel(logging.NOTSET)


async def test_what_has_configs_is_listed(tmp_path: Path) -> None:
    async def listed(broker: Broker, *types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
        frame = await ask_frame(broker, ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": types}, version)
        _, response = read_response(ApiKey.LIST_CONFIG_RESOURCES, version, memoryview(frame))
        return response.error_code, [(each.resource_type, each.resource_name) for each in response.config_resources]

    async with serving_topic(tmp_path) as broker:
        assert (OK, [(TOPIC, "t"), (BROKER, "3"), (LOGGER, "3")]) == await listed(broker)
        assert (OK, [(TOPIC, "t")]) == await listed(broker, TOPIC)
        assert (OK, []) == await listed(broker, METRICS, GROUP)
        assert (OK, []) == await listed(broker, version=0)
        assert [OK] * 2 == await change(broker, *((METRICS, name, [("metrics", SET, "a.")]) for name in ("n/2", "n1")))
        assert (OK, [(METRICS, "n/2"), (METRICS, "n1")]) == await listed(broker, METRICS)
        assert (OK, [(METRICS, "n/2"), (METRICS, "n1")]) == await listed(broker, version=0)
        assert (ErrorCode.UNSUPPORTED_VERSION, []) == await listed(broker, TOPIC, 99)


async def test_client_metrics_subscriptions_are_made_and_removed_by_their_configs(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as broker:

        async def shown() -> list[tuple[str, str | None, int]]:
            found = (await describe(broker, METRICS, "s")).configs
            return [(each.name, each.value, each.config_source) for each in found]

        defaults = [("interval.ms", "300000", 5), ("match", "", 5), ("metrics", "", 5)]
        assert defaults == await shown()
        assert REFUSED == int((await describe(broker, METRICS, "")).error_code)
        assert [OK] == await change(
            broker, (METRICS, "s", [("metrics", SET, "a."), ("match", SET, "client_id=x")]), validate_only=True
        )
        assert {} == broker.image.client_metrics
        assert [OK] == await change(broker, (METRICS, "s", [("metrics", SET, "a."), ("match", SET, "client_id=x")]))
        assert [OK] == await change(broker, (METRICS, "s", [("metrics", APPEND, "b.")]))
        assert {"s": {"metrics": "a.,b.", "match": "client_id=x"}} == broker.image.client_metrics
        assert [("interval.ms", "300000", 5), ("match", "client_id=x", 7), ("metrics", "a.,b.", 7)] == await shown()
        for name, config, code in (
            ("", ("metrics", SET, "a."), REFUSED),
            ("n" * 1001, ("metrics", SET, "a."), REFUSED),
            ("s", ("metricz", SET, "a."), REFUSED),
            ("s", ("interval.ms", SET, "99"), REFUSED),
            ("s", ("match", SET, "client_id=("), INVALID_CONFIG),
        ):
            assert [code] == await change(broker, (METRICS, name, [config]))
        assert OK == await replace(broker, METRICS, "s", [("interval.ms", "100")])
        assert {"s": {"interval.ms": "100"}} == broker.image.client_metrics
        assert [OK] == await change(broker, (METRICS, "s", [("interval.ms", DELETE, None), ("match", DELETE, None)]))
        assert {} == broker.image.client_metrics
