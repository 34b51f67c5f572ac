"""The metrics of a real broker, read over HTTP by Prometheus's own parser."""

import asyncio
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from struct import pack, unpack

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla import AsyncAdmin
from ottla.broker import metrics
from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.metrics import LAG_BOUNDS_SECONDS, LoopLag
from ottla.env.real_clock import RealClock
from ottla.env.world import real_world
from ottla.model.ids import BrokerId
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.version import __version__
from tests.broker.coordinator_requests import begin, commit_offset
from tests.broker.http_client import HOST, endpoint_of, get
from tests.broker.metric_samples import Samples, value, value_of
from tests.broker.running_broker import broker_on, find_coordinator, make_topic, produce, running
from tests.broker.secured import Secured
from tests.broker.sick_disk import SickDisk
from tests.unit.broker.fetch_requests import fetch_frame
from tests.unit.storage.rig import batch
from tests.waiting import until

ROOT = Path(__file__).parents[2]


async def scrape(port: int) -> Samples:
    """Every sample by its name and labels."""
    answer = await get(port, "/metrics")
    assert 200 == answer.status
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


async def append(broker: Broker, topic: str, count: int) -> int:
    """As many batches of one record; returns their size."""
    batches = [batch(b"v%d" % at) for at in range(count)]
    for each in batches:
        await produce(broker, topic, each)
    return sum(each.size_bytes for each in batches)


async def exchange(broker: Broker, *frames: bytes) -> list[bytes]:
    """Sends requests to the broker's port and answers their responses, without length."""
    reader, writer = await asyncio.open_connection(HOST, broker.port)
    answers = []
    for frame in frames:
        writer.write(frame)
        (size,) = unpack(">i", await reader.readexactly(4))
        answers.append(await reader.readexactly(size))
    writer.close()
    await writer.wait_closed()
    return answers


def metadata_frame() -> bytes:
    content = pack(">hhih", 3, 1, 7, -1) + pack(">i", 0)
    return pack(">i", len(content)) + content


async def test_what_passes_through_is_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        endpoint = endpoint_of(broker)
        port = await endpoint.start(HOST, 0)
        await make_topic(broker, "orders", 3)
        await make_topic(broker, "empty")
        size = await append(broker, "orders", 5)
        before = await scrape(port)
        asked = fetch_frame(0, 0, [("orders", 0, 0)])
        answers = await exchange(broker, metadata_frame(), metadata_frame(), asked)
        samples = await scrape(port)
        assert (2.0, 1.0) == (
            value(samples, "ottla_requests_total", api="metadata", version="1"),
            value(samples, "ottla_requests_total", api="fetch", version="7"),
        )

        def growth(name: str) -> float:
            return value(samples, name) - value(before, name)

        assert 2 * len(metadata_frame()) + len(asked) == growth("ottla_received_bytes_total")
        assert sum(4 + len(answer) for answer in answers) == growth("ottla_sent_bytes_total")
        expected = {"partitions": 3, "appended_records_total": 5, "appended_bytes_total": size, "log_bytes": size}
        for name, number in (expected | {"fetched_bytes_total": size}).items():
            assert number == value(samples, f"ottla_topic_{name}", topic="orders")
            assert 0 == value(samples, f"ottla_topic_{name}", topic="empty") or name == "partitions"
            assert number + (name == "partitions") == value(samples, f"ottla_{name}")
        assert (2, 0) == (value(samples, "ottla_topics"), value(samples, "ottla_topics_without_series"))
        assert 1 == growth("ottla_connections_accepted_total")
        assert 1 == value(samples, "ottla_fetch_sessions")
        assert 1 == value(samples, "ottla_ready")
        assert 1 == value(samples, "ottla_build_info", broker="0", version=__version__)
        assert value(samples, "process_resident_memory_bytes") > 10**6
        assert value(samples, "process_open_fds") > 3
        assert value(samples, "ottla_uptime_seconds") > 0
        await endpoint.stop()


async def test_a_broker_that_waits_for_its_metadata_tells_what_it_knows(tmp_path: Path) -> None:
    config = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    broker = Broker(BrokerConfig.parse(settings=config))
    endpoint = endpoint_of(broker)
    port = await endpoint.start(HOST, 0)
    before = await scrape(port)
    assert (0, True) == (value(before, "ottla_ready"), value(before, "ottla_uptime_seconds") > 0)
    assert ("ottla_brokers", ()) not in before
    await broker.start()
    after = await scrape(port)
    assert (1, 1) == (value(after, "ottla_ready"), value(after, "ottla_brokers"))
    await broker.stop()
    assert 0 == value(await scrape(port), "ottla_ready")
    await endpoint.stop()


async def test_what_waits_and_what_is_broken_is_counted(tmp_path: Path) -> None:
    intact, broken, disk = tmp_path / "data", tmp_path / "no folder", SickDisk()
    broken.touch()
    async with broker_on(
        tmp_path, {"log.dirs": f"{intact},{broken}"}, world=replace(real_world(), disk=disk)
    ) as broker:
        endpoint = endpoint_of(broker)
        port = await endpoint.start(HOST, 0)
        await make_topic(broker, "a", 2, flush_messages="1")
        _, writer = await asyncio.open_connection(HOST, broker.port)
        content = bytearray(fetch_frame(0, -1, [("a", 0, 0), ("a", 1, 0)]))
        content[18:22] = pack(">i", 600_000)  # How long it would wait.
        writer.write(content)
        await until(lambda: bool(broker.partitions.find("a", 1).fetch_waiters))
        broker.partitions.find("a", 0).on_isr((broker.id, BrokerId(broker.id + 1)), (broker.id,))
        for index in (0, 1):
            broker.partitions.find("a", index).on_min_insync_replicas(2)
        samples = await scrape(port)
        assert 1 == value(samples, "ottla_fetches_waiting")
        assert 1 == value(samples, "ottla_timers")
        assert 1 == value(samples, "ottla_connections")
        assert 1 == value(samples, "ottla_partitions_under_min_isr")
        assert 0 == value(samples, "ottla_partitions_offline")
        assert [0, 1] == [value(samples, "ottla_data_dir_failed", dir=str(path)) for path in (intact, broken)]
        for index in (0, 1):
            broker.partitions.find("a", index).on_min_insync_replicas(1)
        disk.fail("sync", "a-0")
        assert 0 != (await produce(broker, "a", batch())).error_code.value
        assert 1 == value(await scrape(port), "ottla_partitions_offline")
        writer.close()
        await endpoint.stop()
    disk.close()


async def test_strange_requests_make_no_series(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        endpoint = endpoint_of(broker)
        port = await endpoint.start(HOST, 0)
        for api_key, version in [(9999, 1), (3, 900), (9998, 1)]:
            reader, writer = await asyncio.open_connection(HOST, broker.port)
            writer.write(struct.pack(">ihhihb", 11, api_key, version, 1, -1, 0))
            assert b"" == await reader.read()
            writer.close()
        for _ in range(2):
            samples = await scrape(port)
            assert {
                ("ottla_requests_total", (("api", "unknown"), ("version", ""))): 3.0,
            } == {key: number for key, number in samples.items() if key[0] == "ottla_requests_total"}
        await endpoint.stop()


async def test_totals_do_not_go_back_when_a_topic_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        endpoint = endpoint_of(broker)
        port = await endpoint.start(HOST, 0)
        for name in ("stays", "goes"):
            await make_topic(broker, name)
        size = await append(broker, "stays", 2) + await append(broker, "goes", 3)
        await scrape(port)
        broker.partitions.remove(broker.partitions.find("goes", 0))
        for _ in range(2):
            samples = await scrape(port)
            assert (5, size) == (
                value(samples, "ottla_appended_records_total"),
                value(samples, "ottla_appended_bytes_total"),
            )
            assert (1, 1) == (value(samples, "ottla_topics"), value(samples, "ottla_partitions"))
        await endpoint.stop()


async def test_many_topics_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "TOPICS_MAX", 2)
    async with running(tmp_path) as broker:
        endpoint = endpoint_of(broker)
        port = await endpoint.start(HOST, 0)
        for name in ("a", "b", "c", "d"):
            await make_topic(broker, name)
            await append(broker, name, 1)
        samples = await scrape(port)
        assert [(("topic", "a"),), (("topic", "b"),)] == [
            labels for name, labels in samples if name == "ottla_topic_log_bytes"
        ]
        assert (2, 4) == (
            value(samples, "ottla_topics_without_series"),
            value(samples, "ottla_appended_records_total"),
        )
        await endpoint.stop()


def test_a_broker_without_the_endpoint_does_not_import_prometheus() -> None:
    program = "import sys, ottla.broker.broker, ottla.broker.http_endpoint; print('prometheus_client' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "False" == ended.stdout.strip()


def test_lag_is_put_into_buckets() -> None:
    lag = LoopLag(RealClock())
    for seconds in (-0.1, 0.0, 0.001, 0.0011, 4.0, 5.0, 6.0):
        lag.add(seconds)
    expected = [0] * (len(LAG_BOUNDS_SECONDS) + 1)
    expected[0], expected[1], expected[-2], expected[-1] = 3, 1, 2, 1
    assert expected == lag.counts
    assert 6.0 == lag.last_seconds


async def test_a_blocked_loop_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_LAG_PERIOD_SECONDS", 0.001)
    import time

    async with running(tmp_path) as broker:
        endpoint = endpoint_of(broker)
        port = await endpoint.start(HOST, 0)
        before = await scrape(port)
        time.sleep(0.06)  # noqa: ASYNC251  # This is the blocking that must show.

        def above(samples: Samples) -> float:
            counts = value(samples, "ottla_loop_lag_seconds_count")
            return counts - value(samples, "ottla_loop_lag_seconds_bucket", le="0.05")

        async def shows() -> bool:
            return above(await scrape(port)) >= above(before) + 1

        await until(shows)
        after = await scrape(port)
        assert value(after, "ottla_loop_lag_seconds_sum") >= value(before, "ottla_loop_lag_seconds_sum") + 0.05
        await endpoint.stop()


async def test_every_metric_is_documented_and_nothing_else(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        endpoint = endpoint_of(broker)
        port = await endpoint.start(HOST, 0)
        body = (await get(port, "/metrics")).body.decode()
        await endpoint.stop()
        served = {line.split()[2] for line in body.splitlines() if line.startswith("# TYPE ")}
        page = (ROOT / "docs" / "metrics.md").read_text()
        documented = {line.split("`")[1].split("{")[0] for line in page.splitlines() if line.startswith("| `")}
        # The registry is a process of its own, with metrics of its own.
        assert served == {name for name in documented if not name.startswith("ottla_registry_")}


async def test_handshakes_and_logins_are_counted(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    configs = {"log.dirs": str(tmp_path / "data"), **secured.broker("SASL_SSL")}
    async with Broker(BrokerConfig.parse(settings=configs)) as broker:
        endpoint = endpoint_of(broker)
        port = await endpoint.start(HOST, 0)
        servers = f"{HOST}:{broker.port}"
        async with AsyncAdmin(bootstrap_servers=servers, **secured.client("SASL_SSL")) as admin:
            await admin.list_topics()
        with pytest.raises(AuthenticationError):
            async with AsyncAdmin(
                bootstrap_servers=servers, **secured.client("SASL_SSL", sasl_plain_password="wrong")
            ) as admin:
                await admin.list_topics()
        _, talker = await asyncio.open_connection(HOST, broker.port)
        talker.write(b"not TLS at all")
        await until(lambda: value_of(broker, "ottla_tls_handshakes_failed_total") == 1)
        talker.close()
        _, silent = await asyncio.open_connection(HOST, broker.port)
        await until(lambda: value_of(broker, "ottla_tls_handshakes_under_way") == 1)
        samples = await scrape(port)
        assert 1 == value(samples, "ottla_tls_handshakes_failed_total")
        assert 1 == value(samples, "ottla_tls_handshakes_under_way")
        labels = {"listener": "SASL_SSL", "mechanism": "PLAIN"}
        assert value(samples, "ottla_logins_total", outcome="succeeded", **labels) >= 1
        assert value(samples, "ottla_logins_total", outcome="failed", **labels) >= 1
        assert 0 == value(samples, "ottla_logins_under_way")
        silent.close()
        await endpoint.stop()


async def test_groups_and_transactions_are_counted_by_state(tmp_path: Path) -> None:
    async with running(tmp_path, offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1") as broker:
        endpoint = endpoint_of(broker)
        port = await endpoint.start(HOST, 0)
        await make_topic(broker, "t")
        await find_coordinator(broker, "g")
        await commit_offset(broker, "g", "t", 1)
        await begin(broker, "x")
        samples = await scrape(port)
        assert 1 == value(samples, "ottla_groups", type="classic", state="Empty")
        assert 1 == value(samples, "ottla_transactions", state="Empty")
        assert [] == [name for name, _ in samples if name == "ottla_coordinators_loading"]
        await endpoint.stop()
