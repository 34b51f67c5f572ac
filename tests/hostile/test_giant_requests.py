"""Requests that name more than anybody has: answered, or refused at a bound; never believed, never a stall for long."""

from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from datetime import timedelta
from typing import Any, get_args, get_origin

import pytest
from kio.static.constants import EntityType

from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.shapes import ELEMENTS_MAX
from tests.hostile.broker_process import BrokerProcess
from tests.hostile.bystander import Bystander
from tests.hostile.conftest import GROWTH_BYTES_MAX
from tests.hostile.requests import Target
from tests.hostile.talk import exchange
from tests.wire.exchange import RawConnection, message_class, request_frame

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


@pytest.mark.parametrize("api_key", [ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.DELETE_TOPICS])
def test_beyond_the_bound_the_connection_ends(broker: BrokerProcess, api_key: ApiKey) -> None:
    names = [f"{number}" for number in range(ELEMENTS_MAX + 1)]
    topics: list[dict[str, Any]] = [{"name": name, "topic_id": None, "partitions": []} for name in names]
    frame = request_frame(api_key, SERVED[api_key].highest, COMMON | {"topics": topics})
    with RawConnection(broker.address) as connection:
        connection.send(frame)
        assert b"" == connection.wait_closed()


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
