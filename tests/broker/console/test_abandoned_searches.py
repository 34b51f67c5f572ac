"""Searches whose browser went away, in a console process: other pages, changes and SIGTERM do not wait for them."""

import json
import os
import random
import re
from contextlib import ExitStack
from pathlib import Path

import httpx

from ottla import Admin, NewTopic, Producer
from ottla.testing import InProcessBroker
from tests.processes import OTTLA, Program
from tests.waiting import PATIENCE_SECONDS, wait_until

SEARCHES = 10
VALUE_BYTES, RECORDS = 40_000, 400
SLOW = 'value matches "a[ab]{300}c"'
"""A microsecond for each character of a and b in random order."""
BUSY_SECONDS = 4
"""Of CPU: a chunk takes most of it, and each thread has one."""


def cpu_seconds(program: Program) -> float:
    fields = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_closed_searches_keep_nothing_waiting(broker: InProcessBroker, admin: Admin, tmp_path: Path) -> None:
    admin.create_topics([NewTopic("large", 1)])
    chance = random.Random(1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for _ in range(RECORDS):
            producer.send("large", value=bytes(chance.choices(b"ab", k=VALUE_BYTES)))
    command = [*OTTLA, "console", "--bootstrap", broker.bootstrap, "--listen", "127.0.0.1:0", "--read-only"]
    with Program([*command, "--audit-log", tmp_path / "audit.jsonl"], tmp_path / "console") as console:
        url = console.wait_ready()
        path = "/topics/large/records"
        with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, trust_env=False) as http:
            with ExitStack() as streams:
                for _ in range(SEARCHES):
                    asking = http.stream("GET", f"{path}/search", params={"filter": SLOW})
                    assert 200 == streams.enter_context(asking).status_code
                busy_since = cpu_seconds(console)
                wait_until(lambda: cpu_seconds(console) > busy_since + BUSY_SECONDS, "they are busy")
            closed_at = cpu_seconds(console)
            found = http.get(f"{path}/search", params={"filter": "size(value) > 1", "limit": "1"})
            assert {"rows", "progress", "end"} == set(re.findall("^event: (.+)$", found.text, re.MULTILINE))
            token = re.findall('name="csrf-token" content="([0-9a-f]+)"', http.get("/jobs").text)[0]
            assert 403 == http.post("/groups/g/delete", data={"csrf": token, "confirm": "g"}).status_code
        outcomes = [json.loads(line)["outcome"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        assert ["refused"] == outcomes
        # Less than what is left of the chunks that were being looked through.
        assert cpu_seconds(console) - closed_at < BUSY_SECONDS
        asking = httpx.stream("GET", f"{url}{path}/search", params={"filter": SLOW}, timeout=PATIENCE_SECONDS)
        with asking as last:
            assert (200, 0) == (last.status_code, console.stop())
