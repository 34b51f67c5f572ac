"""Regular expressions of clients, and texts that are read by ours, the most expensive that there are.

One request computes little, in many turns.

The bounds are CPU time, of the broker's serving thread or of this process: they do not depend on how busy a machine is.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ottla.console.filters.errors import FilterError
from ottla.console.filters.parser import parse_filter
from ottla.protocol.apis import ApiKey
from ottla.protocol.config_resources import ResourceType
from ottla.registry.schemas.avro.avro_schema import parse as parse_avro
from ottla.registry.schemas.json_schema.json_schema import parse as parse_json
from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.protobuf.protobuf_schema import parse as parse_protobuf
from tests.broker_process import BrokerProcess
from tests.hostile.quiet_client import QuietClient
from tests.hostile.requests import Target
from tests.hostile.secured import ADMIN, MALLORY, SecuredProcess
from tests.wire.exchange import RawConnection
from tests.wire.groups import unused_group, wait_coordinator
from tests.wire.transactional_producer import TransactionalProducer
from tests.wire.world import TIMEOUT, create_topic, unused_name

TOO_LARGE = ("(?:a?){1000}" * 30, "(?:a?){1000}", r"č(?:\p{L}{5}){5}")
LARGEST = ("(a|b)*a(a|b){980}", "(?:(?:a|b)?(?:b|a)?){400}c", "(?:[ab]{0,990})c")
"""These are allowed, and each character of a name costs the most that it may."""
NAMES = 60
LONG_NAMES = 10
LONGEST = 32_000
"""Characters of a transactional id: nearly as many as the protocol allows."""
TEXT_CPU_SECONDS_MAX = 10.0
"""For texts of half a megabyte: far more than time that grows with the length, far less than with its square."""
CROWD = 60
"""Clients at the same time."""
REFUSED_CPU_SECONDS_MAX = 0.5
"""For twenty requests that are refused."""


def name_of(number: int, length: int) -> str:
    """Different names, in which no prefix tells whether a pattern matches."""
    return f"{number:0{length}b}".replace("0", "a").replace("1", "b")[:length]


@pytest.fixture(scope="module")
def transactions(broker: BrokerProcess) -> list[str]:
    """Transactional ids, some of them as long as they may be."""
    names = [f"x{name_of(number * 7_919, 200)}" for number in range(NAMES)]
    names += [f"x{name_of(number * 7_919, 16) * (LONGEST // 16)}" for number in range(LONG_NAMES)]
    with RawConnection(broker.address) as connection:
        TransactionalProducer(connection)  # its coordinator is ready when it returns
        for name in names:
            values = {"transactional_id": name, "transaction_timeout": TIMEOUT}
            assert ErrorCode.none is connection.ask(ApiKey.INIT_PRODUCER_ID, 4, values).error_code
    return names


def listed(connection: RawConnection, pattern: str) -> tuple[ErrorCode, list[str]]:
    values = {"transactional_id_pattern": pattern, "duration_filter": -1}
    answer = connection.ask_newest(ApiKey.LIST_TRANSACTIONS, values)
    return answer.error_code, [each.transactional_id for each in answer.transaction_states]


def test_lists_of_transactions(broker: BrokerProcess, transactions: list[str]) -> None:
    with RawConnection(broker.address, timeout_s=120.0) as connection, QuietClient(broker) as quiet:
        before = broker.cpu_seconds()
        for pattern in TOO_LARGE * 5:
            assert (ErrorCode.invalid_regular_expression, []) == listed(connection, pattern)
        refused = broker.cpu_seconds() - before
        for pattern in LARGEST:
            assert (ErrorCode.none, []) == listed(connection, f"y{pattern}|z")
            assert (ErrorCode.none, []) == listed(connection, f"x{pattern}z")
        assert (ErrorCode.none, set(transactions)) == (
            (found := listed(connection, "x[ab]*"))[0],
            set(found[1]) & set(transactions),
        )
    quiet.check("lists of transactions")
    print(f"refused: {refused:.2f} s")
    assert refused < REFUSED_CPU_SECONDS_MAX


def test_lists_of_transactions_by_a_crowd(broker: BrokerProcess, transactions: list[str]) -> None:
    def ask(pattern: str) -> tuple[ErrorCode, list[str]]:
        with RawConnection(broker.address, timeout_s=120.0) as connection:
            return listed(connection, f"x{pattern}z")

    with QuietClient(broker) as quiet, ThreadPoolExecutor(8) as pool:
        assert {(ErrorCode.none, 0)} == {(error, len(found)) for error, found in pool.map(ask, LARGEST * 4)}
    quiet.check("lists of transactions by a crowd")


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> list[str]:
    """Topics with long names."""
    names = [f"x{name_of(number * 7_919, 240)}" for number in range(NAMES)]
    with RawConnection(broker.address) as connection:
        for name in names:
            create_topic(connection, name, 1)
        wait_coordinator(connection, unused_group(connection))
    return names


def subscribe(connection: RawConnection, group_id: str, pattern: str) -> ErrorCode:
    """As a new member of a consumer group."""
    values = {
        "group_id": group_id,
        "member_id": unused_name(),
        "rebalance_timeout": timedelta(seconds=10),
        "subscribed_topic_regex": pattern,
        "topic_partitions": [],
    }
    error: ErrorCode = connection.ask_newest(ApiKey.CONSUMER_GROUP_HEARTBEAT, values).error_code
    return error


def test_subscriptions_of_consumer_groups(broker: BrokerProcess, topics: list[str]) -> None:
    with RawConnection(broker.address, timeout_s=120.0) as connection, QuietClient(broker) as quiet:
        before = broker.cpu_seconds()
        for pattern in TOO_LARGE * 5:
            error = subscribe(connection, "patterns", pattern)
            assert error in (ErrorCode.invalid_regular_expression, ErrorCode.invalid_request)
        refused = broker.cpu_seconds() - before
        for pattern in LARGEST:
            assert ErrorCode.none is subscribe(connection, unused_group(connection), pattern)
    quiet.check("subscriptions of consumer groups")
    print(f"refused: {refused:.2f} s")
    assert refused < REFUSED_CPU_SECONDS_MAX


def test_subscriptions_of_a_crowd(broker: BrokerProcess, topics: list[str]) -> None:
    """More patterns at the same time than a coordinator keeps."""

    def ask(number: int) -> ErrorCode:
        with RawConnection(broker.address, timeout_s=120.0) as connection:
            return subscribe(connection, f"crowd-{number}", f"x(?:(?:a|b)?(?:b|a)?){{{400 - number}}}c")

    with QuietClient(broker) as quiet, ThreadPoolExecutor(CROWD) as pool:
        assert {ErrorCode.none} == set(pool.map(ask, range(CROWD)))
    quiet.check("subscriptions of a crowd")


def test_clients_of_metrics_subscriptions(broker: BrokerProcess) -> None:
    """The patterns are an administrator's, the client ids are anybody's."""

    def alter(connection: RawConnection, pattern: str) -> ErrorCode:
        values = {"metrics": "*", "match": f"client_id={pattern}"}
        configs = [{"name": name, "config_operation": 0, "value": value} for name, value in values.items()]
        resource = {"resource_type": ResourceType.CLIENT_METRICS, "resource_name": "patterns", "configs": configs}
        (answer,) = connection.ask_newest(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]}).responses
        error: ErrorCode = answer.error_code
        return error

    with RawConnection(broker.address) as connection:
        for pattern in TOO_LARGE:
            assert ErrorCode.invalid_config is alter(connection, pattern)


@pytest.mark.parametrize("value", [f"a{' ' * LONGEST}b", f"{' ' * LONGEST},", "," * LONGEST, "delete," * 4_000 + "x"])
def test_values_of_configs(broker: BrokerProcess, target: Target, value: str) -> None:
    """Of any type."""
    names = ("cleanup.policy", "leader.replication.throttled.replicas", "retention.ms", "compression.type")
    wrong = (ErrorCode.invalid_config, ErrorCode.invalid_request)
    with RawConnection(broker.address, timeout_s=120.0) as connection, QuietClient(broker) as quiet:
        for name in names:
            config = {"name": name, "config_operation": 0, "value": value}
            resource = {"resource_type": ResourceType.TOPIC, "resource_name": target.topic, "configs": [config]}
            (answer,) = connection.ask_newest(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]}).responses
            assert answer.error_code in wrong, name
            topic = {"name": "not-made", "num_partitions": 1, "replication_factor": 1, "configs": [config]}
            values = {"topics": [topic], "timeout": timedelta(seconds=9)}
            (made,) = connection.ask_newest(ApiKey.CREATE_TOPICS, values).topics
            assert made.error_code in wrong, name
    quiet.check("values of configs")


@pytest.mark.parametrize("piece", ["/* ", "// ", '"\\\\" ', '\\\\"', "/*/", "1", " ", "[", "\\\\ud800"])
@pytest.mark.parametrize(
    "start", ["", '{"type":"string"}', '{"type":"string","x":', '{"type":{"type":"record","name":"r","fields":[']
)
def test_texts_of_schemas(start: str, piece: str) -> None:
    """What is opened and not closed, as often as a body has room for."""
    text = start + "/*" + piece * (500_000 // len(piece))
    before = time.process_time()
    for parse_text in (parse_avro, parse_json, parse_protobuf):
        for each in (text, text.replace("/*", "", 1)):
            with suppress(InvalidSchemaError):
                parse_text(each, {})
    took = time.process_time() - before
    assert took < TEXT_CPU_SECONDS_MAX, f"{took:.1f} s"


@pytest.mark.parametrize("value", ["1" * 500_000 + "x", "1." * 250_000, ".1" * 250_000, "1e" + "1" * 500_000 + "x"])
def test_numbers_in_texts(value: str) -> None:
    """Of defaults, and of records whose column is a decimal."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "f", "type": "double", "default": value}]}
    before = time.process_time()
    with suppress(InvalidSchemaError):
        parse_avro(json.dumps(schema), {})
    assert time.process_time() - before < TEXT_CPU_SECONDS_MAX


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredProcess]:
    with SecuredProcess(tmp_path_factory.mktemp("patterns")) as broker:
        yield broker
        assert [] == broker.alarms()
        broker.stop()


def test_nothing_is_matched_for_a_client_that_may_see_nothing(secured: SecuredProcess) -> None:
    with secured.connection(ADMIN, "SASL_PLAINTEXT") as connection:
        for number in range(NAMES):
            TransactionalProducer(connection, name_of(number * 7_919, 2_000))

    def price(connection: RawConnection, pattern: str) -> float:
        before = secured.cpu_seconds()
        for _ in range(50):
            assert (ErrorCode.none, []) == listed(connection, pattern)
        return secured.cpu_seconds() - before

    with secured.connection(MALLORY, "SASL_PLAINTEXT") as connection:
        cheap, dear = min(price(connection, "z") for _ in range(3)), price(connection, f"{LARGEST[0]}z")
    print(f"50 lists: {cheap:.2f} s, with an expensive pattern {dear:.2f} s")
    assert dear < 3 * cheap + 0.2


@pytest.mark.parametrize("pattern", TOO_LARGE[:3])
def test_filters_of_the_console(pattern: str) -> None:
    with pytest.raises(FilterError, match="too large"):
        parse_filter(f"value matches {json.dumps(pattern)}")


def schema(**values: Any) -> str:
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", **values})


@pytest.mark.parametrize("pattern", [*LARGEST, r"(?:\p{L}{5}){5}", r"[^\p{L}]{40}"])
def test_patterns_of_json_schemas(pattern: str) -> None:
    """Patterns times names, in a comparison that has the time of the registry's only checking thread."""
    patterns = {f"{pattern}{number}z": {"type": "string"} for number in range(300)}
    names = {f"{name_of(number * 7_919, 100)}": {"type": "string"} for number in range(300)}
    reader = parse_json(schema(patternProperties=patterns), {})
    writer = parse_json(schema(properties=names), {})
    before = time.process_time()
    reader.incompatibilities(writer)
    took = time.process_time() - before
    print(f"{took:.2f} s")
    assert took < JSON_CPU_SECONDS_MAX


JSON_CPU_SECONDS_MAX = 10.0
"""The registry's limit for a check, which is looked at only between comparisons."""
