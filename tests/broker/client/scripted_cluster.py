"""A cluster of one scripted broker that knows itself and answers for what it coordinates as a test tells it to."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.protocol.apis import ADVERTISED, SERVED, ApiKey
from ottla.protocol.messages import write_response
from ottla.transport.addresses import Address
from tests.broker.client.scripted_broker import request_message, response, scripted

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
    listed = [
        {
            "api_key": key.value,
            "min_version": versions.lowest,
            "max_version": script.versions_max.get(key, versions.highest),
        }
        for key, versions in {**SERVED, **ADVERTISED}.items()
        if key not in script.without
    ]
    return response(ApiKey.API_VERSIONS, 4, api_keys=listed)


def _metadata(address: Address) -> Any:
    broker = {"node_id": BROKER, "host": address.host, "port": address.port}
    return response(ApiKey.METADATA, 13, brokers=[broker], cluster_id="scripted", controller_id=BROKER)


def _coordinators(address: Address, message: Any) -> Any:
    found = [
        {"key": key, "node_id": BROKER, "host": address.host, "port": address.port} for key in message.coordinator_keys
    ]
    return response(ApiKey.FIND_COORDINATOR, 6, coordinators=found)
