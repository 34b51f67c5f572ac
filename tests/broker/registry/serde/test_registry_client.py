"""Both clients against a registry, and against servers that fail."""

import asyncio
import gc
import http.server
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import pytest

from ottla.registry.schemas.schema import Reference, Schema
from ottla.registry.serde import registry_calls as calls
from ottla.registry.serde import registry_client
from ottla.registry.serde.errors import RegistryAnswerError, RegistryUnavailableError
from ottla.registry.serde.registry_calls import qualified_like
from ottla.registry.serde.registry_client import AsyncRegistryClient, RegistryClient
from tests.loopback_http import LoopbackServer, Request, Response

ONE = Schema(text='{"type":"record","name":"One","fields":[{"name":"a","type":"int"}]}')
TWO = Schema(
    text='{"type":"record","name":"One","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
)
BAD = Schema(text='{"type":"record","name":"One","fields":[{"name":"c","type":"int"}]}')


def test_register_look_up_and_delete(registry: RegistryClient) -> None:
    first = registry.register("client-a/b?", ONE)
    assert (1, "client-a/b?", ONE) == (first.version, first.subject, first.schema)
    assert isinstance(first.guid, UUID)
    second = registry.register("client-a/b?", TWO)
    assert first.id != second.id
    assert [1, 2] == registry.versions("client-a/b?")
    assert ["client-a/b?"] == registry.subjects("client-a")
    assert second == registry.version("client-a/b?")
    assert first == registry.version("client-a/b?", 1) == registry.look_up("client-a/b?", ONE)
    assert ONE == registry.schema_by_id(first.id).schema
    assert TWO == registry.schema_by_guid(second.guid or UUID(int=0)).schema
    assert [] == registry.compatibility_problems("client-a/b?", TWO)
    assert any(
        "READER_FIELD_MISSING_DEFAULT_VALUE" in each for each in registry.compatibility_problems("client-a/b?", BAD)
    )
    with pytest.raises(RegistryAnswerError) as refusal:
        registry.register("client-a/b?", BAD)
    assert 409 == refusal.value.status
    registry.set_config({"compatibility": "NONE"}, "client-a/b?")
    assert 3 == registry.register("client-a/b?", BAD).version
    assert 3 == registry.delete_version("client-a/b?", 3)
    assert [1, 2] == registry.delete_subject("client-a/b?")
    with pytest.raises(RegistryAnswerError) as missing:
        registry.version("client-a/b?")
    assert (404, 40401) == (missing.value.status, missing.value.error_code)


def test_what_never_changes_is_asked_once(registry: RegistryClient) -> None:
    registered = registry.register("client-cached", ONE)
    registry.version("client-cached")
    with RegistryClient("http://127.0.0.1:1", retries=0) as unreachable:
        unreachable._cache = registry._cache
        assert registered == unreachable.register("client-cached", ONE)
        assert registered == unreachable.version("client-cached")
        with pytest.raises(RegistryUnavailableError, match="no schema registry could be reached"):
            unreachable.version("client-cached", 1)


def test_the_latest_version_is_asked_for_again(registry_url: str) -> None:
    with RegistryClient(registry_url, latest_cache_seconds=0) as client:
        client.register("client-latest", ONE)
        assert 1 == client.version("client-latest").version
        client.register("client-latest", TWO)
        assert 2 == client.version("client-latest").version


async def test_references_in_order(registry: RegistryClient) -> None:
    registry.register("client-c", Schema(text='{"type":"fixed","name":"C","size":1}'))
    uses_c = Schema(
        text='{"type":"record","name":"B","fields":[{"name":"c","type":"C"}]}',
        references=(Reference(name="C", subject="client-c", version=1),),
    )
    registry.register("client-b", uses_c)
    uses_both = Schema(
        text='{"type":"record","name":"A","fields":[{"name":"b","type":"B"},{"name":"c","type":"C"}]}',
        references=(
            Reference(name="B", subject="client-b", version=1),
            Reference(name="C", subject="client-c", version=1),
        ),
    )
    registry.register("client-a", uses_both)
    found = registry.version("client-a").schema
    assert uses_both == found
    assert ["C", "B"] == list(registry.references_of(found))
    async with AsyncRegistryClient(registry.config.urls) as client:
        assert dict(registry.references_of(found)) == dict(await client.references_of(found))
        assert ["client-b", "client-c"] == sorted(set(await client.subjects("client-")) & {"client-b", "client-c"})


async def test_the_async_client(registry_url: str) -> None:
    async with AsyncRegistryClient(registry_url) as client:
        same = await asyncio.gather(*(client.register("client-async", ONE) for _ in range(20)))
        assert {1} == {each.version for each in same}
        assert [1] == await client.versions("client-async")
        assert same[0] == await client.look_up("client-async", ONE) == await client.version("client-async")
        assert ONE == (await client.schema_by_id(same[0].id)).schema
        assert [] == await client.compatibility_problems("client-async", TWO, "latest")
        with pytest.raises(RegistryAnswerError, match="42201"):
            await client.register("client-async", Schema(text="{"))
        await client.set_config({"compatibility": "NONE"}, "client-async")
        assert 1 == await client.delete_version("client-async", 1)
        with pytest.raises(RegistryAnswerError, match="40401"):
            await client.versions("client-async")
        assert [1] == await client.delete_subject("client-async", permanent=True)


def test_config_mode_and_contexts(registry: RegistryClient) -> None:
    registry.register("client-config", ONE)
    assert {"compatibility": "FULL"} == registry.ask(calls.set_config({"compatibility": "FULL"}, "client-config"))
    assert "FULL" == registry.ask(calls.config("client-config"))["compatibilityLevel"]
    registry.ask(calls.delete_config("client-config"))
    assert "BACKWARD" == registry.ask(calls.config("client-config"))["compatibilityLevel"]
    assert "READONLY" == registry.ask(calls.set_mode("READONLY", "client-config"))
    assert "READONLY" == registry.ask(calls.mode("client-config"))
    registry.ask(calls.delete_mode("client-config"))
    assert "READWRITE" == registry.ask(calls.mode("client-config"))
    assert "." in registry.ask(calls.contexts())
    assert [] == registry.ask(calls.referenced_by("client-config", 1))


@contextmanager
def server(*answers: tuple[int, bytes]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that gives these answers in turn, the last of them forever; and the headers of its requests."""
    left, seen = list(answers), list[dict[str, str]]()

    def answer(request: Request) -> Response:
        seen.append(dict(request.headers))
        status, body = left.pop(0) if len(left) > 1 else left[0]
        return Response(status=status, text=body.decode())

    with LoopbackServer(answer) as running:
        yield f"http://127.0.0.1:{running.port}", seen


async def test_the_next_url_is_tried() -> None:
    with server((200, b'["a"]')) as (url, _), RegistryClient(["http://127.0.0.1:1", url]) as client:
        assert ["a"] == client.subjects()
    with server((503, b"busy"), (200, b'["a"]')) as (url, seen), RegistryClient(f"{url}/") as client:
        assert ["a"] == client.subjects()
        assert 2 == len(seen)
    with server((429, b""), (200, b"[]")) as (url, seen):
        async with AsyncRegistryClient(f"http://127.0.0.1:1, {url}") as client:
            assert [] == await client.subjects()
            assert 2 == len(seen)


def test_failures_that_stay() -> None:
    broken = b'{"error_code":50001,"message":"no disk"}'
    with server((500, broken)) as (url, seen), RegistryClient(url, retries=2) as client:
        with pytest.raises(RegistryUnavailableError, match=r"no disk \(error 50001\) \(tried 3 times\)"):
            client.subjects()
        assert 3 == len(seen)
    for status, body, words in (
        (404, b"<html>", "HTTP status 404: <html>"),
        (401, b'{"error_code":401,"message":"Unauthorized"}', "Unauthorized"),
    ):
        with server((status, body)) as (url, seen), RegistryClient(url) as client:
            with pytest.raises(RegistryAnswerError, match=words):
                client.subjects()
            assert 1 == len(seen)
    with (
        server((200, b"<html>")) as (url, _),
        RegistryClient(url) as client,
        pytest.raises(RegistryUnavailableError, match="not that of a schema registry"),
    ):
        client.subjects()


def test_credentials() -> None:
    with server((200, b"[]")) as (url, seen):
        for options in ({"auth": ("me", "secret")}, {"token": "abc"}, {"token": lambda: "def"}):
            with RegistryClient(url, **options) as client:
                client.subjects()
    assert ["Basic bWU6c2VjcmV0", "Bearer abc", "Bearer def"] == [each["Authorization"] for each in seen]


def test_a_url_without_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with http:// or https://"):
        RegistryClient("127.0.0.1:8081")


def test_references_stay_in_the_context() -> None:
    assert ["b", ":.ctx:b", ":.other:b"] == [
        qualified_like("b", "a"),
        qualified_like("b", ":.ctx:a"),
        qualified_like(":.other:b", ":.ctx:a"),
    ]


class Hostile(http.server.BaseHTTPRequestHandler):
    """Answers with what the test wants, in parts."""

    protocol_version = "HTTP/1.1"
    headers_sent: tuple[tuple[str, str], ...] = ()
    parts: Iterable[bytes] = ()

    def do_GET(self) -> None:
        self.send_response(200)
        for name, value in (*self.headers_sent, ("Transfer-Encoding", "chunked")):
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):
            for part in self.parts:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def hostile(*parts: bytes, endless: Callable[[], Iterable[bytes]] | None = None, **headers: str) -> Iterator[str]:
    """The URL of a server that answers with these parts of a body."""

    class Handler(Hostile):
        headers_sent = tuple((name.replace("_", "-"), value) for name, value in headers.items())

        @property
        def parts(self) -> Iterable[bytes]:  # type: ignore[override]
            return parts if endless is None else endless()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked_both(url: str, **options: Any) -> list[BaseException]:
    """The errors of both clients that ask for a schema."""

    async def asynchronously() -> None:
        async with AsyncRegistryClient(url, retries=0, **options) as client:
            await client.schema_by_id(1)

    with RegistryClient(url, retries=0, **options) as client:
        with pytest.raises(RegistryUnavailableError) as blocking:
            client.schema_by_id(1)
        with pytest.raises(RegistryUnavailableError) as asynchronous:
            asyncio.run(asynchronously())
    return [blocking.value, asynchronous.value]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"schema":"x","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"<html>",
        b'{"schema":"x","guid":"zz"}',
        b'{"schema":"x","ruleSet":{"domainRules":5}}',
        b'{"schema":"x","ruleSet":{"encodingRules":[null]}}',
        b'{"schema":"x","references":[{"name":5}]}',
    ],
)
def test_answers_that_no_registry_gives(body: bytes) -> None:
    with hostile(body) as url:
        for error in asked_both(url):
            assert "not that of a schema registry" in str(error)


@pytest.mark.parametrize("schema_id", [-1, 2**31, 2**40])
def test_an_id_that_has_no_place_in_the_prefix(schema_id: int) -> None:
    with (
        hostile(b'{"id":%d,"version":1,"schema":"\\"int\\""}' % schema_id) as url,
        RegistryClient(url, retries=0) as client,
        pytest.raises(RegistryUnavailableError, match="not that of a schema registry"),
    ):
        client.version("s")


def test_an_answer_that_is_not_what_its_encoding_says() -> None:
    with hostile(b"not gzip", Content_Encoding="gzip") as url:
        for error in asked_both(url):
            assert "DecodingError" in str(error)


def test_an_answer_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_client, "ANSWER_BYTES_MAX", 1_000_000)
    with hostile(endless=lambda: itertools.repeat(b"x" * 65_536)) as url:
        for error in asked_both(url):
            assert "more than 1000000 bytes" in str(error)


def test_an_answer_that_comes_too_slowly() -> None:
    def dripping() -> Iterator[bytes]:
        while True:
            yield b" "
            threading.Event().wait(0.05)

    with hostile(endless=dripping) as url:
        for error in asked_both(url, timeout_seconds=2.0):
            assert "not complete after 2.0 seconds" in str(error)


def test_a_forked_process_has_its_own_connections(registry: RegistryClient) -> None:
    """Otherwise it and its parent would read each other's answers."""
    first = registry.register("client-forked", ONE)
    connections = registry._http
    with registry._stripes[0], registry._cache._lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                is_other = registry._http is not connections
                code = 0 if is_other and registry.version("client-forked", 1) == first else 2
            finally:
                os._exit(code)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert connections is registry._http
    assert first == registry.version("client-forked", 1)


async def test_an_error_that_no_task_waits_for_any_more_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncRegistryClient("http://127.0.0.1:1", retries=0) as client:
        asking = asyncio.create_task(client.schema_by_id(1))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.wait(list(client._in_flight.values()))
        await asyncio.sleep(0)
    gc.collect()
    assert "never retrieved" not in caplog.text
