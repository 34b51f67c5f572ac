"""One connection: versions, many requests in flight, and every way in which it can end."""

import asyncio
import contextlib
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.metadata.v13.request import MetadataRequest
from kio.schema.metadata.v13.response import MetadataResponse

from ottla.client.errors import CannotConnectError, ConnectionLostError, UnsupportedByBrokerError
from ottla.env.ports import UnresolvedHostError
from ottla.env.real_network import RealNetwork, RealSocket
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds, wire_error, write_response
from ottla.transport.addresses import Address
from ottla.transport.client_connection import Connection
from tests.broker.client.scripted_broker import scripted, versions_answer

ASKED = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
TIMEOUT_MS = 10_000


def metadata_answer(version: int, correlation_id: int, cluster_id: str = "c") -> bytes:
    answer = MetadataResponse(
        throttle_time=milliseconds(0),
        brokers=(),
        cluster_id=cluster_id,
        topics=(),
        error_code=wire_error(ErrorCode.NONE),
    )
    return write_response(ApiKey.METADATA, version, correlation_id, answer)


def answering(metadata: Callable[[int, int], bytes | None]) -> Callable[[int, int, int, bytes], bytes | None]:
    """A script that says what it speaks, and answers Metadata as told."""

    def script(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes | None:
        if api_key == ApiKey.API_VERSIONS:
            return versions_answer(version, correlation_id)
        return metadata(version, correlation_id)

    return script


async def opened(address: Address, **more: Any) -> Connection:
    return await Connection.open(RealNetwork(), address, client_id="test", timeout_ms=TIMEOUT_MS, **more)


@pytest.mark.both_loops
async def test_it_negotiates_and_asks_in_the_highest_version_of_both() -> None:
    async with scripted(answering(metadata_answer)) as (broker, address):
        connection = await opened(address)
        assert "c" == (await connection.request(ApiKey.METADATA, ASKED)).cluster_id
        assert "c" == (await connection.request(ApiKey.METADATA, ASKED, version_max=9)).cluster_id
        assert [(18, 4, 0), (3, 13, 1), (3, 9, 2)] == broker.requests
        connection.close()


async def test_an_older_broker_is_asked_again_in_version_0() -> None:
    def script(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes | None:
        if version > 0:
            # As every broker answers a version that it does not know: version 0, the code, and what it would take.
            entry = bytes.fromhex("00000001 0012 0000 0002")
            refusal = correlation_id.to_bytes(4, "big") + (35).to_bytes(2, "big") + entry
            return len(refusal).to_bytes(4, "big") + refusal
        return versions_answer(version, correlation_id)

    async with scripted(script) as (broker, address):
        connection = await opened(address)
        assert [(18, 4, 0), (18, 0, 1)] == broker.requests
        assert 13 == connection.version_for(ApiKey.METADATA)
        connection.close()


async def test_many_requests_are_in_flight_and_each_gets_its_own_answer() -> None:
    held: list[bytes] = []

    def hold(version: int, correlation_id: int) -> bytes | None:
        held.append(metadata_answer(version, correlation_id, f"answer {correlation_id}"))
        # Nothing is answered before all have arrived: only a client that does not wait gets that far.
        return b"".join(held) if len(held) == 50 else None

    async with scripted(answering(hold)) as (_, address):
        connection = await opened(address)
        asking = [connection.request(ApiKey.METADATA, ASKED) for _ in range(50)]
        answers = await asyncio.gather(*asking)
        assert [f"answer {number}" for number in range(1, 51)] == [answer.cluster_id for answer in answers]
        assert 0 == connection.in_flight
        connection.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "the broker closed the connection"),
        (b"HTTP/1.1 400 Bad Request", "invalid response size 1213486160"),
        (b"\0\0\0\4\0\0\0\x63", "received a response to request 99, expected 1"),
    ],
)
async def test_whatever_breaks_it_every_waiter_is_told_with_the_address(answer: bytes, words: str) -> None:
    async with scripted(answering(lambda *_: answer)) as (_, address):
        connection = await opened(address)
        asking = [asyncio.create_task(connection.request(ApiKey.METADATA, ASKED)) for _ in range(3)]
        errors = await asyncio.gather(*asking, return_exceptions=True)
        assert [ConnectionLostError] * 3 == [type(error) for error in errors]
        assert str(errors[0]).startswith(f"{address}: {words}")
        assert connection.is_closed
        with pytest.raises(ConnectionLostError, match=str(address)):
            await connection.request(ApiKey.METADATA, ASKED)


async def test_an_answer_that_is_none_ends_it() -> None:
    async with scripted(answering(lambda *_: b"\0\0\0\6\0\0\0\1\0\0")) as (_, address):
        connection = await opened(address)
        with pytest.raises(ConnectionLostError, match="its response cannot be read: METADATA v13"):
            await connection.request(ApiKey.METADATA, ASKED)
        assert connection.is_closed


async def test_silence_ends_it_after_the_time_that_was_given() -> None:
    async with scripted(answering(lambda *_: None)) as (_, address):
        connection = await opened(address)
        with pytest.raises(ConnectionLostError, match="METADATA was not answered within 50 ms"):
            await connection.request(ApiKey.METADATA, ASKED, timeout_ms=50)
        assert connection.is_closed


async def test_one_who_gives_up_does_not_disturb_the_others() -> None:
    held: list[bytes] = []

    def hold(version: int, correlation_id: int) -> bytes | None:
        held.append(metadata_answer(version, correlation_id, str(correlation_id)))
        return b"".join(held) if len(held) == 2 else None

    async with scripted(answering(hold)) as (_, address):
        connection = await opened(address)
        impatient = asyncio.create_task(connection.request(ApiKey.METADATA, ASKED))
        await asyncio.sleep(0)
        impatient.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await impatient
        assert "2" == (await connection.request(ApiKey.METADATA, ASKED)).cluster_id
        connection.close()


async def test_a_large_request_is_sent_whole_although_the_socket_takes_it_in_parts() -> None:
    sizes: list[int] = []

    def script(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes | None:
        if api_key == ApiKey.API_VERSIONS:
            return versions_answer(version, correlation_id)
        sizes.append(len(body))
        return b"\0\0\0\5" + correlation_id.to_bytes(4, "big") + b"\0"

    async with scripted(script) as (_, address):
        connection = await opened(address)
        piece = b"x" * 1_000_003
        parts = [piece] * 30
        answers = [connection.request_bytes(ApiKey.PRODUCE, 9, parts) for _ in range(2)]
        assert [b"\0\0\0\1\0", b"\0\0\0\2\0"] == [bytes(await answer) for answer in answers]
        header_bytes = len("test") + 2 + 1
        assert [30 * len(piece) + header_bytes] * 2 == sizes
        connection.close()


async def test_nobody_listens() -> None:
    async with scripted(answering(metadata_answer)) as (_, address):
        pass
    with pytest.raises(CannotConnectError, match=f"{address}: connection refused"):
        await opened(address)


class FailingNetwork(RealNetwork):
    """A network whose connections all fail with one error."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    async def connect(self, host: str, port: int) -> RealSocket:
        raise self._error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnresolvedHostError(errno.EADDRNOTAVAIL, "nothing is known of host h"), "nothing is known of host h"),
        (OSError(errno.EHOSTUNREACH, "connect(('h', 9092)): cannot be resolved"), "no route to host"),
        (OSError("something else"), "something else"),
    ],
)
async def test_why_a_connection_failed_depends_on_the_kind_of_error(error: OSError, words: str) -> None:
    with pytest.raises(CannotConnectError, match=f"^h:9092: {words}$"):
        await Connection.open(FailingNetwork(error), Address("h", 9092), client_id="test", timeout_ms=TIMEOUT_MS)


async def test_a_name_that_means_nothing() -> None:
    with pytest.raises(CannotConnectError, match=r"host name 'no-such-host\.invalid' cannot be resolved"):
        await opened(Address("no-such-host.invalid", 9092))


class ConnectedNetwork(RealNetwork):
    """A network whose connections are made before they are asked for, so that none takes any of a short timeout."""

    def __init__(self, socket: RealSocket) -> None:
        super().__init__()
        self._socket = socket

    async def connect(self, host: str, port: int) -> RealSocket:
        return self._socket


@pytest.mark.parametrize(
    ("answer", "words"), [(None, "does not answer within 100 ms"), (b"", "no valid response from a Kafka broker")]
)
async def test_somebody_listens_who_is_no_broker(answer: bytes | None, words: str) -> None:
    async with scripted(lambda *_: answer) as (_, address):
        network = ConnectedNetwork(await RealNetwork().connect(*address))
        with pytest.raises(CannotConnectError, match=words):
            await Connection.open(network, address, client_id="test", timeout_ms=100 if answer is None else TIMEOUT_MS)


async def test_an_answer_larger_than_allowed_ends_it() -> None:
    answer = answering(lambda version, number: metadata_answer(version, number, "x" * 5000))
    async with scripted(answer) as (_, address):
        connection = await opened(address, response_bytes_max=4096)
        with pytest.raises(ConnectionLostError, match="expected 4 to 4096"):
            await connection.request(ApiKey.METADATA, ASKED)


async def test_what_the_broker_does_not_speak_is_said_before_it_is_asked() -> None:
    def script(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes | None:
        return versions_answer(version, correlation_id, without=(ApiKey.METADATA,))

    async with scripted(script) as (broker, address):
        connection = await opened(address)
        with pytest.raises(UnsupportedByBrokerError, match=f"{address} does not support METADATA"):
            await connection.request(ApiKey.METADATA, ASKED)
        with pytest.raises(UnsupportedByBrokerError, match="FETCH v4 to v18, but this client needs"):
            connection.version_for(ApiKey.FETCH, 3)
        assert 1 == len(broker.requests)
        connection.close()


async def test_a_message_that_no_frame_can_hold_is_the_callers_mistake() -> None:
    async with scripted(answering(metadata_answer)) as (_, address):
        connection = await opened(address)
        with pytest.raises(MisuseError, match="METADATA v13 cannot hold"):
            await connection.request(ApiKey.METADATA, replace(ASKED, topics=3))  # type: ignore[arg-type]
        # And the next one still gets its own answer.
        assert "c" == (await connection.request(ApiKey.METADATA, ASKED)).cluster_id
        connection.close()
