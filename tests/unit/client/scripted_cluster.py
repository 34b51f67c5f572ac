"""A cluster of one scripted broker that knows itself and answers for what it coordinates as a test tells it to."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ADVERTISED, ApiKey
from ottla.protocol.messages import milliseconds, wire_error, write_response
from ottla.transport.addresses import Address
from tests.unit.client.scripted_broker import request_message, scripted

BROKER = 5
QUICK = Backoff(first_ms=1, most_ms=1)

AnswerFor = Callable[[], Any]
"""The next answer, of the newest version's class."""


@dataclass(slots=True)
class Script:
    """What is answered, by API; `asked` collects which were asked for, without the negotiation."""

    answers: Mapping[ApiKey, AnswerFor]
    versions_max: Mapping[ApiKey, int] = field(default_factory=dict)
    without: frozenset[ApiKey] = frozenset()
    asked: list[ApiKey] = field(default_factory=list)


@asynccontextmanager
async def scripted_cluster(script: Script) -> AsyncIterator[Cluster]:
    """A cluster to ask; the broker also answers Metadata and FindCoordinator, unless the script does."""
    here: list[Address] = []

    def answer(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes | None:
        key = ApiKey(api_key)
        if key is ApiKey.API_VERSIONS:
            return write_response(key, version, correlation_id, _versions(script))
        script.asked.append(key)
        if key in script.answers:
            found = script.answers[key]()
        elif key is ApiKey.METADATA:
            found = _metadata(here[0])
        else:
            found = _coordinators(here[0], request_message(key, version, body))
        return write_response(key, version, correlation_id, found)

    async with scripted(answer) as (_, address), Cluster([address], backoff=QUICK) as cluster:
        here.append(address)
        yield cluster


def _versions(script: Script) -> Any:
    from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse

    listed: Any = tuple(
        ApiVersion(
            api_key=key.value,  # type: ignore[arg-type]
            min_version=versions.lowest,  # type: ignore[arg-type]
            max_version=script.versions_max.get(key, versions.highest),  # type: ignore[arg-type]
        )
        for key, versions in ADVERTISED.items()
        if key not in script.without
    )
    return ApiVersionsResponse(error_code=wire_error(ErrorCode.NONE), api_keys=listed, throttle_time=milliseconds(0))


def _metadata(address: Address) -> Any:
    from kio.schema.metadata.v13.response import MetadataResponse, MetadataResponseBroker

    broker: Any = MetadataResponseBroker(node_id=BROKER, host=address.host, port=address.port)  # type: ignore[arg-type]
    return MetadataResponse(
        throttle_time=milliseconds(0),
        brokers=(broker,),
        cluster_id="scripted",
        controller_id=BROKER,  # type: ignore[arg-type]
        topics=(),
        error_code=wire_error(ErrorCode.NONE),
    )


def _coordinators(address: Address, message: Any) -> Any:
    from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse

    found: Any = tuple(
        Coordinator(
            key=key,
            node_id=BROKER,  # type: ignore[arg-type]
            host=address.host,
            port=address.port,  # type: ignore[arg-type]
            error_code=wire_error(ErrorCode.NONE),
            error_message=None,
        )
        for key in message.coordinator_keys
    )
    return FindCoordinatorResponse(throttle_time=milliseconds(0), coordinators=found)
