"""The address in the audit log: what a browser writes into a header is not believed unless the console has a proxy."""

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest

from ottla.console.serving import ServedConsole
from ottla.console.settings import ConsoleSettings
from ottla.transport.addresses import Address
from tests.waiting import PATIENCE_SECONDS

FORWARDED = "203.0.113.9"


@pytest.mark.parametrize(("hosts", "origin"), [((), "127.0.0.1"), (("console.example",), FORWARDED)])
async def test_a_forwarded_address_is_believed_only_behind_a_proxy(
    tmp_path: Path, hosts: tuple[str, ...], origin: str
) -> None:
    audit = tmp_path / "audit.jsonl"
    server = ServedConsole(
        ConsoleSettings(
            bootstrap="127.0.0.1:1",
            listen=Address("127.0.0.1", 0),
            read_only=True,
            audit_file=audit,
            hosts=hosts,
        )
    )
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(server.run(stop, ready.set))
    await ready.wait()
    headers = {"X-Forwarded-For": FORWARDED}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=PATIENCE_SECONDS) as client:
        token = re.findall('name="csrf-token" content="([0-9a-f]+)"', (await client.get("/jobs")).text)[0]
        refused = await client.post("/groups/g/delete", data={"csrf": token, "confirm": "g"})
        assert 403 == refused.status_code
    stop.set()
    await running
    assert [origin] == [json.loads(line)["origin"] for line in audit.read_text().splitlines()]
