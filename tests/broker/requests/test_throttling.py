"""Quotas: every response says for how long its client is throttled, comes at once, and mutes the connection."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.messages import throttle_position
from ottla.security.connection_context import ConnectionContext
from ottla.security.quotas import Unlimited
from tests.broker.running_broker import serving_in_thread
from tests.sweeps import sweep
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection, request_frame
from tests.wire.world import batch, create_topic, produce


class Fixed(Unlimited):
    """Throttles every request of one client id for the same time."""

    is_unlimited = False

    def __init__(self) -> None:
        self.milliseconds = 0
        self.counted: list[tuple[int, int, int]] = []

    def throttle_ms(
        self,
        client: ConnectionContext,
        client_id: str | None,
        api_key: int,
        *,
        request_bytes: int,
        response_bytes: int,
        counts_time: bool = True,
    ) -> int:
        assert ("PLAINTEXT", "wire") == (client.listener, client_id)
        self.counted.append((api_key, request_bytes, response_bytes))
        return self.milliseconds


@pytest.fixture(scope="module")
def quotas() -> Fixed:
    return Fixed()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, quotas: Fixed) -> Iterator[str]:
    with serving_in_thread(tmp_path_factory.mktemp("broker"), quotas=quotas) as broker:
        yield f"127.0.0.1:{broker.port}"


EVERY_VERSION = [
    (api_key, version)
    for api_key, versions in SERVED.items()
    for version in range(versions.lowest, versions.highest + 1)
]
VALUES: dict[ApiKey, dict[str, Any]] = {
    ApiKey.API_VERSIONS: {"client_software_name": "n", "client_software_version": "1"},
    ApiKey.PRODUCE: {"acks": 1, "topic_data": []},
    ApiKey.JOIN_GROUP: {"group_id": "g", "protocol_type": "t"},
}


@sweep(("api_key", "version"), EVERY_VERSION)
def test_every_response_with_the_field_has_the_throttle_time(
    address: str, quotas: Fixed, api_key: ApiKey, version: int
) -> None:
    quotas.milliseconds = 70_000_000
    try:
        with RawConnection(address) as connection:
            answer = connection.ask(api_key, version, VALUES.get(api_key, {}))
    finally:
        quotas.milliseconds = 0
    if hasattr(answer, "throttle_time") and api_key is not ApiKey.WRITE_TXN_MARKERS:
        assert timedelta(milliseconds=70_000_000) == answer.throttle_time


def test_which_apis_have_no_throttle_time_in_their_newest_version() -> None:
    lacking = {each for each in SERVED if throttle_position(each, SERVED[each].highest) is None}
    between_brokers = {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
    sasl = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert {ApiKey.DESCRIBE_QUORUM} | between_brokers | sasl == lacking


def test_the_response_comes_at_once_and_the_next_request_waits(address: str, quotas: Fixed) -> None:
    with RawConnection(address) as muted, RawConnection(address) as connection:
        # Answered, though it is muted for hours; and other connections of the client are not muted.
        quotas.milliseconds = 70_000_000
        muted.ask(ApiKey.HEARTBEAT, 4, {"group_id": "g"})
        quotas.milliseconds = 500
        began = time.monotonic()
        connection.ask(ApiKey.HEARTBEAT, 4, {"group_id": "g"})
        quotas.milliseconds = 0
        connection.ask(ApiKey.HEARTBEAT, 4, {"group_id": "g"})
        assert time.monotonic() - began >= 0.49
    quotas.counted.clear()


def test_a_throttled_fetch_has_no_records_and_can_be_repeated(address: str, quotas: Fixed) -> None:
    with RawConnection(address) as connection:
        topic_id = create_topic(connection, "t")
        produce(connection, topic_id, batch())
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        wanted = {"max_bytes": 1000, "session_epoch": 0, "topics": [{"topic_id": topic_id, "partitions": [part]}]}
        quotas.counted.clear()
        quotas.milliseconds = 1
        first = connection.ask_newest(ApiKey.FETCH, wanted)
        quotas.milliseconds = 0
        assert (timedelta(milliseconds=1), ()) == (first.throttle_time, first.responses)
        second = connection.ask_newest(ApiKey.FETCH, wanted)
        assert len(second.responses[0].partitions[0].records) > 0
    assert len(batch()) == quotas.counted[0][2]


def test_a_throttled_fetch_begins_no_session_and_keeps_one(address: str, quotas: Fixed) -> None:
    """The Java client discards an empty response to a full fetch with its session id: the session would never be used,
    and would take the place of others."""
    with RawConnection(address) as connection:
        topic_id = create_topic(connection, "sessions")
        produce(connection, topic_id, batch())
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        wanted = {"max_bytes": 1000, "session_epoch": 0, "topics": [{"topic_id": topic_id, "partitions": [part]}]}
        quotas.milliseconds = 1
        throttled = connection.ask_newest(ApiKey.FETCH, wanted)
        quotas.milliseconds = 0
        assert (0, ()) == (throttled.session_id, throttled.responses)
        begun = connection.ask_newest(ApiKey.FETCH, wanted).session_id
        assert begun > 0
        quotas.milliseconds = 1
        following = {"max_bytes": 1000, "session_id": begun, "topics": []}
        throttled = connection.ask_newest(ApiKey.FETCH, following | {"session_epoch": 1})
        quotas.milliseconds = 0
        assert (begun, ()) == (throttled.session_id, throttled.responses)
        served = connection.ask_newest(ApiKey.FETCH, following | {"session_epoch": 2})
        assert len(served.responses[0].partitions[0].records) > 0


def test_a_produce_request_is_counted_by_its_size(address: str, quotas: Fixed) -> None:
    with RawConnection(address) as connection:
        topic_id = create_topic(connection, "sized")
        quotas.counted.clear()
        produce(connection, topic_id, batch())
    ((api_key, request_bytes, response_bytes),) = quotas.counted
    assert (ApiKey.PRODUCE, 0) == (api_key, response_bytes)
    assert len(batch()) < request_bytes < len(batch()) + 200


def test_a_produce_request_without_acks_mutes_too(address: str, quotas: Fixed) -> None:
    with RawConnection(address) as connection:
        topic_id = create_topic(connection, "silent")
        quotas.milliseconds = 400
        data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch()}]}]
        quotas.counted.clear()
        began = time.monotonic()
        connection.send(request_frame(ApiKey.PRODUCE, 13, {"acks": 0, "timeout": timedelta(0), "topic_data": data}))
        wait_until(lambda: quotas.counted, "the request is counted")
        quotas.milliseconds = 0
        connection.ask(ApiKey.HEARTBEAT, 4, {"group_id": "g"})
        assert time.monotonic() - began >= 0.35
