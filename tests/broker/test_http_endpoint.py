"""The HTTP endpoint over real sockets: its paths, its health, and everything that is not a proper request."""

import asyncio
import errno
import json
import logging
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.http_endpoint import CONNECTIONS_MAX, CONNECTIONS_PER_HOST_MAX, HEAD_BYTES_MAX
from ottla.broker.metrics import Metrics
from ottla.protocol.apis import ApiKey
from tests.broker.http_client import HOST, HttpClient, endpoint_of, get
from tests.broker.running_broker import ask, running

pytestmark = pytest.mark.both_loops


@asynccontextmanager
async def started(broker: Broker, request_seconds: float = 10.0) -> AsyncIterator[int]:
    """The endpoint's port."""
    endpoint = endpoint_of(broker, request_seconds=request_seconds)
    port = await endpoint.start(HOST, 0)
    try:
        yield port
    finally:
        await endpoint.stop()
        await endpoint.stop()


def unstarted(folder: Path) -> Broker:
    return Broker(BrokerConfig.parse(settings={"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}))


@asynccontextmanager
async def endpoint(folder: Path, **settings: float) -> AsyncIterator[int]:
    """Of a broker that was not started: enough for what does not look into it."""

    async with started(unstarted(folder), **settings) as port:
        yield port


class TestHealth:
    async def test_ready_and_not(self, tmp_path: Path) -> None:
        broker = unstarted(tmp_path / "data")
        async with started(broker) as port:
            unready = {"status": "unready", "reasons": ["the broker is starting or stopping"]}
            answer = await get(port, "/health/ready")
            assert (503, unready) == (answer.status, json.loads(answer.body))
            assert 200 == (await get(port, "/health/live")).status
            await broker.start()
            answer = await get(port, "/health/ready")
            assert (200, {"status": "ready"}) == (answer.status, json.loads(answer.body))
            await broker.stop()
            assert 503 == (await get(port, "/health/ready")).status
            assert 200 == (await get(port, "/health/live")).status

    async def test_a_failed_data_dir_is_a_reason(self, tmp_path: Path) -> None:
        path = tmp_path / "no folder"
        path.touch()
        async with running(tmp_path, log_dirs=f"{tmp_path / 'data'},{path}") as broker, started(broker) as port:
            answer = await get(port, "/health/ready")
            assert 503 == answer.status
            reason = f"data dir {path}: {path}: File exists; the partitions in {path} are offline"
            assert [reason] == json.loads(answer.body)["reasons"]


class TestPaths:
    async def test_the_index_names_what_there_is(self, tmp_path: Path) -> None:
        async with endpoint(tmp_path) as port:
            index = await get(port, "/")
            assert (200, "application/json") == (index.status, index.headers["content-type"])
            for path in json.loads(index.body)["paths"]:
                assert (await get(port, path)).status in (200, 503)

    async def test_several_requests_on_one_connection(self, tmp_path: Path) -> None:
        async with endpoint(tmp_path) as port:
            client = await HttpClient.connect(port)
            line = b"GET /health/live?verbose=1 HTTP/1.1\r\nHost: x\r\n\r\n"
            client.writer.write(line * 5)
            assert [200] * 5 == [(await client.receive()).status for _ in range(5)]
            assert 200 == (await client.get("/")).status
            answer = await client.ask(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (200, b"") == (answer.status, await client.rest())
            await client.close()

    async def test_head_has_no_body(self, tmp_path: Path) -> None:
        async with endpoint(tmp_path) as port:
            client = await HttpClient.connect(port)
            head = await client.get("/", "HEAD")
            full = await client.get("/")
            assert (200, full.headers["content-length"]) == (head.status, head.headers["content-length"])
            assert 200 == (await client.get("/metrics", "HEAD")).status
            await client.close()

    @pytest.mark.parametrize(
        "path", ["/metric", "/metrics/", "//", "/health", "/%2e%2e/etc/passwd", "*", "/" + "x" * 5000]
    )
    async def test_what_there_is_not(self, tmp_path: Path, path: str) -> None:
        async with endpoint(tmp_path) as port:
            answer = await get(port, path)
            assert 404 == answer.status
            assert "/metrics" in json.loads(answer.body)["error"]
            assert len(answer.body) < 500

    async def test_names_of_other_sites(self, tmp_path: Path) -> None:
        async with endpoint(tmp_path) as port:
            client = await HttpClient.connect(port)
            for host, status in (("evil.example:9644", 421), ("localhost", 200), ("127.0.0.1:9644", 200)):
                answer = await client.ask(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert status == answer.status
            assert 200 == (await client.ask(b"GET /health/live HTTP/1.0\r\n\r\n")).status
            await client.close()

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])
    async def test_other_methods(self, tmp_path: Path, method: str) -> None:
        async with endpoint(tmp_path) as port:
            answer = await get(port, "/metrics", method)
            assert (405, "GET, HEAD") == (answer.status, answer.headers["allow"])

    async def test_a_port_that_is_taken(self, tmp_path: Path) -> None:
        async with endpoint(tmp_path) as port:
            other = endpoint_of(unstarted(tmp_path))
            with pytest.raises(OSError, match=r"(?i)in use") as raised:
                await other.start(HOST, port)
            told = f"cannot serve HTTP on {HOST}:{port}: Address already in use"
            assert (errno.EADDRINUSE, told) == (raised.value.errno, raised.value.strerror)
            await other.stop()


MALFORMED = {
    "no http": b"hello\r\n\r\n",
    "a kafka request": b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff\r\n\r\n",
    "binary": bytes(range(256)) + b"\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a broken header": b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
    "two lengths": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a negative length": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    "a strange version": b"GET / HTTP/x.1\r\nHost: x\r\n\r\n",
    "a long first line": b"GET /" + b"x" * 3 * HEAD_BYTES_MAX,
    "many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * HEAD_BYTES_MAX,
}


class TestBadRequests:
    @pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED.keys())
    async def test_are_refused_and_the_connection_ends(self, tmp_path: Path, content: bytes) -> None:
        async with endpoint(tmp_path) as port:
            client = await HttpClient.connect(port)
            client.writer.write(content)
            answer = await client.rest()
            # A reset because of what was not read may overtake the answer.
            assert b"" == answer or answer.split()[1][:1] in (b"4", b"5")
            await client.close()
            assert 200 == (await get(port, "/health/live")).status

    async def test_a_head_may_be_so_long_and_no_longer(self, tmp_path: Path) -> None:
        async with endpoint(tmp_path) as port:
            client = await HttpClient.connect(port)
            # All of it is read, so that no reset can overtake the answer.
            answer = await client.ask(b"GET /" + b"x" * (HEAD_BYTES_MAX + 1 - len(b"GET /")))
            assert (431, b"") == (answer.status, await client.rest())
            await client.close()

    async def test_say_what_is_wrong(self, tmp_path: Path) -> None:
        async with endpoint(tmp_path) as port:
            client = await HttpClient.connect(port)
            answer = await client.ask(b"GET / HTTP/1.1\r\n\r\n")
            assert 400 == answer.status
            assert "Host" in json.loads(answer.body)["error"]
            assert b"" == await client.rest()
            await client.close()

    @pytest.mark.parametrize(
        "head",
        [
            b"Content-Length: 1000000000\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Expect: 100-continue\r\nContent-Length: 9\r\n",
        ],
    )
    async def test_bodies_are_not_waited_for(self, tmp_path: Path, head: bytes) -> None:
        async with endpoint(tmp_path) as port:
            client = await HttpClient.connect(port)
            answer = await client.ask(b"POST /metrics HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n")
            assert (405, "close") == (answer.status, answer.headers["connection"])
            assert b"" == await client.rest()
            await client.close()

    @pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
    async def test_who_is_too_slow_is_cut_off(self, tmp_path: Path, begun: bytes) -> None:
        async with endpoint(tmp_path, request_seconds=0.05) as port:
            client = await HttpClient.connect(port)
            client.writer.write(begun)
            assert b"" == await client.rest()
            await client.close()

    @pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
    async def test_slow_connections_do_not_keep_a_probe_out(self, tmp_path: Path, begun: bytes) -> None:
        """Neither those of many addresses nor those of the probe's own one."""
        async with endpoint(tmp_path) as port:
            slow = [await HttpClient.connect(port, f"127.0.0.{at % 8 + 1}") for at in range(2 * CONNECTIONS_MAX)]
            for client in slow:
                client.writer.write(begun)
            for _ in range(3):
                assert 200 == (await get(port, "/health/live")).status
            for client in slow:
                await client.close()

    async def test_the_one_that_waits_longest_makes_room(self, tmp_path: Path) -> None:
        async with endpoint(tmp_path) as port:
            clients = [await HttpClient.connect(port) for _ in range(CONNECTIONS_PER_HOST_MAX)]
            for client in clients:
                assert 200 == (await client.get("/health/live")).status
            assert 200 == (await clients[0].get("/health/live")).status
            another = await HttpClient.connect(port)
            assert 200 == (await another.get("/health/live")).status
            assert b"" == await clients[1].rest()
            for client in (clients[0], *clients[2:], another):
                assert 200 == (await client.get("/health/live")).status
            for client in [*clients, another]:
                await client.close()

    async def test_stopping_ends_connections_that_are_open(self, tmp_path: Path) -> None:
        async with started(unstarted(tmp_path)) as port:
            client = await HttpClient.connect(port)
            assert 200 == (await client.get("/")).status
        assert b"" == await client.rest()
        await client.close()
        with pytest.raises(OSError):  # noqa: PT011  # Refused, in the words of either loop.
            await asyncio.open_connection(HOST, port)


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When metrics were collected. Each collection keeps the event loop busy for 20 ms, as on a large broker."""
    begun: list[float] = []
    collect = Metrics.text

    async def slow_text(metrics: Metrics) -> tuple[bytes, str]:
        begun.append(time.monotonic())
        time.sleep(0.02)  # noqa: ASYNC251  # Blocks the loop on purpose.
        return await collect(metrics)

    monkeypatch.setattr(Metrics, "text", slow_text)
    return begun


class TestManyScrapes:
    SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"

    async def test_requests_that_wait_together_share_a_collection(
        self, tmp_path: Path, collections: list[float]
    ) -> None:
        async with running(tmp_path) as broker, started(broker) as port:
            clients = [await HttpClient.connect(port, f"127.0.0.{at % 8 + 1}") for at in range(CONNECTIONS_MAX)]
            for client in clients:
                client.writer.write(self.SCRAPE)
            for client in clients:
                assert 200 == (await client.receive()).status
                await client.close()
        seconds = collections[-1] - collections[0]
        # A slow machine may take so long to read the requests that they do not all wait together.
        assert len(collections) <= max(4, 2 + seconds / 0.2)

    async def test_scrapes_leave_most_of_the_time_to_the_broker(self, tmp_path: Path, collections: list[float]) -> None:
        """Also pipelined ones whose answers are not read; a probe is answered meanwhile."""
        async with running(tmp_path) as broker, started(broker) as port:
            clients = [await HttpClient.connect(port, f"127.0.0.{at % 8 + 2}") for at in range(2 * CONNECTIONS_MAX)]
            for client in clients:
                client.writer.write(self.SCRAPE * 20)
            for _ in range(5):
                assert 200 == (await get(port, "/health/live")).status
                await asyncio.sleep(0.2)  # over which the share is measured
            for client in clients:
                await client.close()
        seconds = collections[-1] - collections[0]
        assert len(collections) <= 1 + seconds / 0.2 + 1

    async def test_a_client_that_leaves_while_it_waits_is_not_an_error(
        self, tmp_path: Path, collections: list[float], caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            async with running(tmp_path) as broker, started(broker) as port:
                assert 200 == (await get(port, "/metrics")).status
                for _ in range(8):
                    client = await HttpClient.connect(port)
                    client.writer.write(self.SCRAPE)
                    await client.writer.drain()
                    await asyncio.sleep(0.01)  # it leaves before, while or after it is answered
                    reset = struct.pack("ii", 1, 0)
                    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                    client.writer.transport.abort()
                assert 200 == (await get(port, "/metrics")).status
                assert len(collections) >= 2
        assert [] == caplog.messages

    async def test_metrics_are_collected_after_the_request(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker, started(broker) as port:
            for count in range(3):
                await ask(broker, ApiKey.API_VERSIONS, {})
                body = (await get(port, "/metrics")).body
                assert b"ottla_connections_accepted_total %d.0" % (count + 1) in body
