"""Registry instances in this process, on a real broker, asked through ASGI or over a port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from ottla.registry.service.application import Application
from ottla.registry.service.election_protocol import Instance
from ottla.registry.service.leader_election import ElectionOptions
from ottla.registry.service.registry import Registry, RegistryConfig
from ottla.registry.service.served_registry import ServedRegistry
from ottla.registry.state.errors import OPERATION_TIMEOUT, UNKNOWN_LEADER
from ottla.transport.addresses import Address

ELECTION = ElectionOptions(session_timeout_ms=12_000, heartbeat_interval_ms=200)
"""A machine may stall for seconds; and less than a write waits for a leader, in case an instance could not leave."""
V1 = "application/vnd.schemaregistry.v1+json"


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    """The body that registers an Avro record."""
    import json

    return {"schema": json.dumps({"type": "record", "name": name, "fields": list(fields)})}


ORDER = record("Order", {"name": "id", "type": "long"})
ORDER_2 = record("Order", {"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""})
ORDER_BAD = record("Order", {"name": "id", "type": "long"}, {"name": "price", "type": "double"})


@dataclass
class Started:
    """One instance and its HTTP client."""

    registry: Registry
    application: Application
    http: httpx.AsyncClient

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The JSON of an answer that must be 200."""
        response = await self.http.request(method, path, json=body, **options)
        assert response.status_code == 200, (response.status_code, response.text)
        return response.json()

    async def error(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, int]:
        """Status and error code of an answer that must be an error with a body of the right shape."""
        response = await self.http.request(method, path, json=body, **options)
        told = response.json()
        assert {"error_code", "message"} == set(told), told
        assert told["message"]
        return response.status_code, told["error_code"]

    async def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Registers a schema and returns its id.

        A leader that resigns meanwhile does not know whether it was written, and electing another one may take long:
        the request is repeated, as clients do.
        """
        while True:
            response = await self.http.post(f"/subjects/{subject}/versions", json=schema)
            answer = response.json()
            if answer.get("error_code") not in (OPERATION_TIMEOUT, UNKNOWN_LEADER):
                assert response.status_code == 200, answer
                return int(answer["id"])

    async def until_leading(self) -> None:
        """Returns when this instance leads."""
        while self.registry.leadership is None:
            await self.registry.wait_change()

    async def until_leader_known(self) -> None:
        """Returns when this instance leads or knows the leader."""
        while self.registry.leader is None:
            await self.registry.wait_change()


@asynccontextmanager
async def started(bootstrap: str, port: int = 8081, **options: Any) -> AsyncIterator[Started]:
    """An instance that advertises a port where nothing listens."""
    options.setdefault("election", ELECTION)
    config = RegistryConfig(bootstrap=bootstrap, advertised=Instance(host="127.0.0.1", port=port), **options)
    registry = Registry(config)
    application = Application(registry, write_timeout_ms=20_000)
    try:
        await registry.start()
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(application), base_url="http://registry", timeout=30
        ) as http:
            yield Started(registry, application, http)
    finally:
        await registry.stop()
        await application.close()


@asynccontextmanager
async def served(bootstrap: str, *, hosts: tuple[str, ...] = (), **options: Any) -> AsyncIterator[Started]:
    """An instance that listens on a free port."""
    options.setdefault("election", ELECTION)
    config = RegistryConfig(bootstrap=bootstrap, advertised=Instance(host="", port=0), **options)
    served = ServedRegistry(config, Address("127.0.0.1", 0), hosts=hosts)
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(served.run(stop, ready.set))
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        async with httpx.AsyncClient(base_url=f"http://{served.address}", timeout=60, trust_env=False) as http:
            yield Started(served.registry, served.application, http)
    finally:
        waiting.cancel()
        stop.set()
        await running
