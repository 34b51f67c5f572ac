"""Requests that name more than anybody has: answered, or refused at a bound; never believed, never a stall for long."""

from collections.abc import Callable, Iterator
from dataclasses import Field, fields, is_dataclass
from datetime import timedelta
from typing import Any, get_args, get_origin

import pytest
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.shapes import ELEMENTS_ALWAYS, ELEMENTS_MAX
from tests.broker_process import BrokerProcess
from tests.hostile.bystander import Bystander
from tests.hostile.conftest import GROWTH_BYTES_MAX
from tests.hostile.requests import Target
from tests.hostile.talk import exchange
from tests.wire.exchange import RawConnection, message_class, request_frame
from tests.wire.groups import wait_coordinator

MANY = 20_000
HOT = {ApiKey.PRODUCE, ApiKey.FETCH}
COMMON: dict[str, Any] = {"timeout": timedelta(seconds=1), "validate_only": True, "allow_auto_topic_creation": False}


def giants(api_key: ApiKey) -> Iterator[tuple[str, dict[str, Any]]]:
    """A request for each array that the newest version of an API has, with many different elements in that array."""
    yield from _with_many(message_class(api_key, SERVED[api_key].highest, EntityType.request))


def _with_many(message: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in fields(message):
        element = _element_type(field)
        if element is None:
            continue
        if not is_dataclass(element):
            is_text = field.metadata["kafka_type"] == "string"
            yield field.name, {field.name: [f"n{number}" if is_text else number % 100 for number in range(MANY)]}
            continue
        yield field.name, {field.name: [_element(element, number) for number in range(MANY)]}
        for name, values in _with_many(element):
            yield f"{field.name}.{name}", {field.name: [{**_element(element, 0), **values}]}


def _element_type(field: Field[Any]) -> Any:
    """Of what a field is an array; None if it is none."""
    kind = next((part for part in get_args(field.type) if get_origin(part) is tuple), field.type)
    return get_args(kind)[0] if get_origin(kind) is tuple else None


def _element(message: Any, number: int) -> dict[str, Any]:
    """Something that does not exist, each time another one; the first is a topic that does."""
    name = f"n{number}" if number else "target"
    values: dict[str, Any] = {}
    for field in fields(message):
        if _element_type(field) is None:
            match field.metadata.get("kafka_type"):
                case "string":
                    values[field.name] = name
                case "int32":
                    values[field.name] = number
    return values


CASES = [(api_key, name, values) for api_key in SERVED if api_key not in HOT for name, values in giants(api_key)]


@pytest.mark.parametrize(("api_key", "name", "values"), CASES, ids=[f"{key.name}-{name}" for key, name, _ in CASES])
def test_giants_are_answered_or_refused(
    broker: BrokerProcess, target: Target, api_key: ApiKey, name: str, values: dict[str, Any]
) -> None:
    broker.forget_peak()
    before = broker.resident_bytes()
    frame = request_frame(api_key, SERVED[api_key].highest, COMMON | values)
    with Bystander(broker.address, idle_seconds=0.2) as bystander:
        is_settled, answer = exchange(broker.address, frame, patience=60.0)
    grown = broker.peak_bytes() - before
    print(f"{api_key.name} {name}: {len(frame) >> 10} KiB, answer {len(answer) >> 10} KiB, grown {grown >> 20} MiB")
    assert is_settled, "neither answered nor closed"
    assert grown < GROWTH_BYTES_MAX
    bystander.check(pace=False)


def test_beyond_the_bound_the_connection_ends(broker: BrokerProcess) -> None:
    """Elements are counted in all, and by the bytes that arrived."""
    topics = [{"name": "t", "partitions": []} for _ in range(ELEMENTS_MAX + 1)]
    too_many = request_frame(ApiKey.LIST_OFFSETS, SERVED[ApiKey.LIST_OFFSETS].highest, {"topics": topics})
    too_short = request_frame(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [2] * (ELEMENTS_ALWAYS + 1)})
    for frame in (too_many, too_short):
        with RawConnection(broker.address) as connection:
            connection.send(frame)
            assert b"" == connection.wait_closed()


LARGE = 60_000
"""Topics and groups of a large cluster."""
LARGE_OFFSETS = 100_000
LEGITIMATE: dict[ApiKey, tuple[dict[str, Any], Callable[[Any], int], int]] = {
    ApiKey.METADATA: (
        {"topics": [{"name": f"t{each}", "topic_id": None} for each in range(LARGE)]},
        lambda answer: len(answer.topics),
        LARGE,
    ),
    ApiKey.DELETE_TOPICS: (
        {"topics": [{"name": f"t{each}", "topic_id": None} for each in range(LARGE)]},
        lambda answer: len(answer.responses),
        LARGE,
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        {"resources": [{"resource_type": 2, "resource_name": f"t{each}"} for each in range(LARGE)]},
        lambda answer: len(answer.results),
        LARGE,
    ),
    ApiKey.OFFSET_COMMIT: (
        {
            "group_id": "many",
            "generation_id_or_member_epoch": -1,
            "topics": [
                {
                    "name": "target",
                    "partitions": [{"partition_index": each, "committed_offset": 1} for each in range(LARGE_OFFSETS)],
                }
            ],
        },
        lambda answer: sum(len(topic.partitions) for topic in answer.topics),
        LARGE_OFFSETS,
    ),
    ApiKey.OFFSET_FETCH: (
        {
            "groups": [
                {"group_id": "many", "topics": [{"name": "target", "partition_indexes": list(range(LARGE_OFFSETS))}]}
            ]
        },
        lambda answer: sum(len(topic.partitions) for group in answer.groups for topic in group.topics),
        LARGE_OFFSETS,
    ),
}
"""A request, what to count in its answer, and how many there must be."""


@pytest.mark.parametrize("api_key", LEGITIMATE, ids=lambda api_key: api_key.name)
def test_nothing_legitimate_is_refused(broker: BrokerProcess, target: Target, api_key: ApiKey) -> None:
    values, count, expected = LEGITIMATE[api_key]
    by_name = min(SERVED[api_key].highest, 9)
    with RawConnection(broker.address, timeout_s=120.0) as connection:
        if api_key in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
            wait_coordinator(connection, "many")
        assert expected == count(connection.ask(api_key, by_name, COMMON | values))


@pytest.mark.parametrize(
    ("api_key", "name"),
    [
        (ApiKey.LIST_GROUPS, "states_filter"),
        (ApiKey.LIST_GROUPS, "types_filter"),
        (ApiKey.LIST_TRANSACTIONS, "state_filters"),
    ],
)
def test_filters_with_more_words_than_there_are(
    broker: BrokerProcess, target: Target, api_key: ApiKey, name: str
) -> None:
    """Every partition of the coordinator would look at each of them."""
    with RawConnection(broker.address) as connection:
        for count, expected in ((100, ErrorCode.none), (101, ErrorCode.invalid_request)):
            words = [f"w{each}" for each in range(count)]
            assert expected is connection.ask_newest(api_key, {name: words, "duration_filter": -1}).error_code


def test_counts_that_lie_cost_nothing(broker: BrokerProcess) -> None:
    """Two thousand million elements in some bytes, wherever a version's first array may be."""
    broker.forget_peak()
    before = broker.resident_bytes()
    for api_key in SERVED:
        for version in range(SERVED[api_key].lowest, SERVED[api_key].highest + 1):
            head = request_frame(api_key, version, {"topics": [], "resources": []})[4:]
            for lie in (b"\x7f\xff\xff\xff" * 20, b"\xff\xff\xff\xff\x07" * 20):
                for kept in (14, 15, 16, 18, 19, 20):
                    content = head[:kept] + lie
                    exchange(broker.address, len(content).to_bytes(4, "big") + content, patience=5.0)
    assert broker.peak_bytes() - before < GROWTH_BYTES_MAX


def test_sessions_for_partitions_that_do_not_exist(broker: BrokerProcess, target: Target) -> None:
    """Fetch sessions remember what was asked for; there is a bound on that too."""
    parts = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1} for index in range(40_000)]
    values = {"topics": [{"topic_id": target.topic_id, "partitions": parts}], "max_bytes": 1, "session_epoch": 0}
    frame = request_frame(ApiKey.FETCH, 13, values)
    broker.forget_peak()
    before = broker.resident_bytes()
    with RawConnection(broker.address) as connection:
        for _ in range(20):
            connection.send(frame)
            connection.receive()
    grown = broker.peak_bytes() - before
    print(f"grown by {grown >> 20} MiB")
    assert grown < GROWTH_BYTES_MAX
