"""The REST interface of one instance on a real broker: routes, error bodies, content types, limits."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import pytest

from ottla.registry.service.application import Application
from ottla.registry.service.authorization import Client, Operation
from ottla.registry.service.http_messages import http_error
from ottla.registry.state.schema_checks import SchemaCheck
from ottla.testing import InProcessBroker
from tests.broker.registry.service.instances import ORDER, ORDER_2, ORDER_BAD, V1, record, started
from tests.waiting import PATIENCE_SECONDS, until


async def test_a_subject_through_its_life(ottla_broker: InProcessBroker) -> None:
    async with started(ottla_broker.bootstrap) as one:
        assert [] == await one.call("GET", "/subjects")
        first = await one.call("POST", "/subjects/orders-value/versions", ORDER)
        assert 1 == first["id"]
        assert first["id"] == (await one.call("POST", "/subjects/orders-value/versions", ORDER))["id"]
        assert first["id"] == (await one.call("POST", "/subjects/copies-value/versions", ORDER))["id"]
        assert 2 == (await one.call("POST", "/subjects/orders-value/versions", ORDER_2))["id"]
        assert (409, 40901) == await one.error("POST", "/subjects/orders-value/versions", ORDER_BAD)
        assert ["copies-value", "orders-value"] == await one.call("GET", "/subjects")
        assert [1, 2] == await one.call("GET", "/subjects/orders-value/versions")
        latest = await one.call("GET", "/subjects/orders-value/versions/latest")
        assert (2, 2, "orders-value") == (latest["version"], latest["id"], latest["subject"])
        assert 2 == (await one.call("POST", "/subjects/orders-value", ORDER_2))["version"]
        by_id = await one.call("GET", "/schemas/ids/1")
        assert by_id["schema"] == (await one.http.get("/schemas/ids/1/schema")).text
        assert by_id["schema"] == (await one.call("GET", f"/schemas/guids/{by_id['guid']}"))["schema"]
        assert [{"subject": "copies-value", "version": 1}, {"subject": "orders-value", "version": 1}] == (
            await one.call("GET", "/schemas/ids/1/versions")
        )
        check = "/compatibility/subjects/orders-value/versions/latest"
        assert {"is_compatible": True} == await one.call("POST", check, ORDER_2)
        verbose = await one.call("POST", f"{check}?verbose=true", ORDER_BAD)
        assert (False, True) == (verbose["is_compatible"], bool(verbose["messages"]))
        assert {"compatibility": "NONE"} == await one.call("PUT", "/config/orders-value", {"compatibility": "NONE"})
        assert 3 == (await one.call("POST", "/subjects/orders-value/versions", ORDER_BAD))["id"]
        assert [1, 2, 3] == await one.call("DELETE", "/subjects/orders-value")
        assert (404, 40401) == await one.error("GET", "/subjects/orders-value/versions")
        assert [1, 2, 3] == await one.call("DELETE", "/subjects/orders-value?permanent=true")
        other = record("Other", {"name": "x", "type": "int"})
        assert 4 == (await one.call("POST", "/subjects/other/versions", other))["id"]
    # What was written is found again, and no id is given a second time.
    async with started(ottla_broker.bootstrap) as again:
        assert ["copies-value", "other"] == await again.call("GET", "/subjects")
        assert 5 == (await again.call("POST", "/subjects/orders-value/versions", ORDER_2))["id"]


class LongCheck:
    """A check that takes until an event."""

    versions = ()

    def __init__(self, end: threading.Event) -> None:
        self._end = end

    def pieces(self) -> Iterator[None]:
        self._end.wait(PATIENCE_SECONDS)
        yield


async def test_a_check_that_takes_long_does_not_delay_other_writes(ottla_broker: InProcessBroker) -> None:
    large, larger = ({**ORDER, "schema": ORDER["schema"] + " " * size} for size in (5_000, 6_000))
    async with started(ottla_broker.bootstrap) as one:
        await one.until_leading()
        checking = one.registry.checking
        end = threading.Event()
        running = asyncio.create_task(checking.run(cast(SchemaCheck, LongCheck(end)), "another client"))
        waiting = [
            asyncio.create_task(one.call("POST", "/compatibility/subjects/large/versions", large)),
            asyncio.create_task(one.call("POST", "/subjects/large/versions", larger)),
        ]
        await until(lambda: checking.waiting == 2)
        assert 1 == (await one.call("POST", "/subjects/small/versions", ORDER_2))["version"]
        assert {"is_compatible": True} == (
            await one.call("POST", "/compatibility/subjects/small/versions/latest", ORDER)
        )
        assert not any(each.done() for each in waiting)
        end.set()
        await running
        check, registered = await asyncio.gather(*waiting)
        assert (True, 1) == (check["is_compatible"], registered["version"])


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with InProcessBroker(tmp_path_factory.mktemp("application")) as broker:
        yield broker.bootstrap


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, 404),
        ("GET", "/subjects/a/b/c/d", 404, 404),
        ("GET", "/schemas/ids/abc", 404, 404),
        ("GET", "/schemas/ids/99999999999", 404, 404),
        ("GET", "/schemas/ids/77", 404, 40403),
        ("GET", "/schemas/guids/nonsense", 404, 40403),
        ("GET", "/subjects?offset=abc", 404, 404),
        ("GET", "/subjects/none/versions", 404, 40401),
        ("GET", "/subjects/none/versions/0", 422, 42202),
        ("GET", "/subjects/none/versions/x", 422, 42202),
        ("GET", "/config/none", 404, 40408),
        ("GET", "/mode/none", 404, 40409),
        ("GET", "/associations/elsewhere/-/orders", 404, 404),
        ("POST", "/schemas/ids/1", 405, 405),
        ("PATCH", "/subjects", 405, 405),
        ("DELETE", "/subjects/none", 404, 40401),
        ("GET", "/" + "/".join("x" * 30), 404, 404),
    ],
)
async def test_errors_have_the_body_of_the_registry(
    bootstrap: str, method: str, path: str, status: int, code: int
) -> None:
    async with started(bootstrap) as one:
        assert (status, code) == await one.error(method, path)


async def test_bodies_that_are_not_right(bootstrap: str) -> None:
    async with started(bootstrap) as one:
        versions = "/subjects/s/versions"
        for content, expected in (
            (b"", (422, 422)),
            (b"null", (422, 422)),
            (b"{", (400, 400)),
            (b"[]", (400, 400)),
            (b'{"schema": 1}', (422, 42201)),
            (b'{"schema": {"type": "int"}}', (400, 400)),
            (b'{"schema": "{}", "schemaType": ""}', (422, 42201)),
            (b"\xff", (400, 400)),
            (b"[" * 100_000, (400, 400)),
            (b'{"schema": "{"}', (422, 42201)),
            (b'{"schema": "{}", "schemaType": "COBOL"}', (422, 42201)),
        ):
            assert expected == await one.error("POST", versions, content=content), content[:40]
        assert (422, 42203) == await one.error("PUT", "/config", {"compatibility": "SOMEHOW"})
        assert (422, 42204) == await one.error("PUT", "/mode", {"mode": "SOMEHOW"})
        too_large = {"headers": {"content-length": str(10**9)}, "content": b"x"}
        assert (413, 413) == await one.error("POST", versions, **too_large)
        assert (413, 413) == await one.error("POST", versions, content=b" " * (13 * 1024 * 1024))


async def test_content_types(bootstrap: str) -> None:
    async with started(bootstrap) as one:
        for accept, expected in (
            ("*/*", V1),
            (V1, V1),
            ("application/json", "application/json"),
            ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
            ("application/json;q=0.5, application/vnd.schemaregistry.v1+json", V1),
            ("text/html, */*;q=0.1", V1),
        ):
            answer = await one.http.get("/subjects", headers={"accept": accept})
            assert (200, expected) == (answer.status_code, answer.headers["content-type"])
        assert (406, 406) == await one.error("GET", "/subjects", headers={"accept": "text/html"})
        for sent in (V1, "application/json; charset=utf-8", "application/octet-stream", ""):
            answer = await one.http.post(
                "/subjects/typed/versions", content=b"{", headers={"content-type": sent} if sent else {}
            )
            assert 400 == answer.status_code, sent
        assert (415, 415) == await one.error("POST", "/subjects/typed/versions", headers={"content-type": "text/plain"})
        # An error has the type that the client accepts, too.
        answer = await one.http.get("/schemas/ids/77", headers={"accept": "application/json"})
        assert "application/json" == answer.headers["content-type"]


async def test_head_and_options(bootstrap: str) -> None:
    async with started(bootstrap) as one:
        head = await one.http.head("/subjects")
        assert (200, b"") == (head.status_code, head.content)
        options = await one.http.options("/subjects/x/versions")
        assert "GET, HEAD, OPTIONS, POST" == options.headers["allow"]


async def test_subjects_with_slashes_and_spaces(bootstrap: str) -> None:
    async with started(bootstrap) as one:
        await one.call("POST", "/subjects/a%2Fb%20c%25/versions", ORDER)
        assert "a/b c%" in await one.call("GET", "/subjects")
        assert [1] == await one.call("GET", "/subjects/a%2Fb%20c%25/versions/")
        assert (404, 404) == await one.error("GET", "/subjects/a/b")


async def test_contexts_in_paths(bootstrap: str) -> None:
    async with started(bootstrap) as one:
        registered = await one.call("POST", "/contexts/.lab/subjects/orders/versions", ORDER_2)
        assert 1 == registered["id"]
        assert [1] == await one.call("GET", "/subjects/:.lab:orders/versions")
        assert [":.lab:orders"] == await one.call("GET", "/contexts/:.lab:/subjects")
        assert ".lab" in await one.call("GET", "/contexts")
        found = await one.call("GET", "/contexts/.lab/schemas/ids/1")
        assert "note" in found["schema"]
        await one.call("PUT", "/contexts/.lab/config", {"compatibility": "FULL"})
        assert "FULL" == (await one.call("GET", "/config/:.lab:"))["compatibilityLevel"]
        assert (422, 42211) == await one.error("DELETE", "/contexts/.lab")
        await one.call("DELETE", "/subjects/:.lab:orders")
        await one.call("DELETE", "/subjects/:.lab:orders?permanent=true")
        gone = await one.http.delete("/contexts/.lab")
        assert (204, b"", None) == (gone.status_code, gone.content, gone.headers.get("content-type"))


async def test_the_instance_describes_itself(bootstrap: str) -> None:
    async with started(bootstrap) as one:
        assert {} == await one.call("GET", "/")
        told = await one.call("GET", "/v1/metadata/id")
        assert "schema-registry" == told["scope"]["clusters"]["schema-registry-cluster"]
        assert one.registry.cluster_id == told["scope"]["clusters"]["kafka-cluster"]
        assert (await one.call("GET", "/v1/metadata/version"))["version"].startswith("ottla")
        assert {"attributes": []} == await one.call("GET", "/v1/metadata/deployment")
        assert ["AVRO"] == [each for each in await one.call("GET", "/schemas/types") if each == "AVRO"]
        metrics = (await one.http.get("/metrics")).text
        assert 'ottla_registry_requests_total{method="GET",route="/schemas/types",status="200"} 1.0' in metrics
        assert "ottla_registry_topic_lost 0.0" in metrics


async def test_look_ups_are_kept_until_something_changes(bootstrap: str) -> None:
    async with started(bootstrap) as one:
        await one.call("GET", "/subjects")
        before = one.application.metrics.cached
        listed = await one.call("GET", "/subjects")
        assert before + 1 == one.application.metrics.cached
        await one.call("POST", "/subjects/kept/versions", ORDER)
        assert sorted([*listed, "kept"]) == await one.call("GET", "/subjects")


async def test_a_read_only_instance_answers_reads_and_refuses_writes(ottla_broker: InProcessBroker) -> None:
    async with (
        started(ottla_broker.bootstrap) as one,
        started(ottla_broker.bootstrap, 8082, read_only=True) as reader,
    ):
        await one.call("POST", "/subjects/s/versions", ORDER)
        await reader.registry.wait_applied(one.registry.applied)
        assert ["s"] == await reader.call("GET", "/subjects")
        assert (422, 42205) == await reader.error("POST", "/subjects/s/versions", ORDER_2)
        assert (422, 42205) == await reader.error("DELETE", "/subjects/s")


async def test_concurrent_registrations_share_transactions(bootstrap: str) -> None:
    async with started(bootstrap) as one:
        await one.until_leading()
        bodies = [record(f"R{number}", {"name": "x", "type": "int"}) for number in range(60)]
        answers = await asyncio.gather(
            *(one.call("POST", f"/subjects/g{place % 7}-{place}/versions", body) for place, body in enumerate(bodies))
        )
        assert 60 == len({each["id"] for each in answers})
        assert one.registry.written.transactions < 60


class OnlyReaders:
    """Knows one client by its header, and lets it read what does not begin with `hidden`."""

    allows_all = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []

    async def identify(self, client: Client) -> Client:
        """Asked for each request."""
        if client.authorization != "Basic ada":
            raise http_error(401)
        return client

    def allows(self, client: Client, operation: Operation, subject: str | None) -> bool:
        """Asked for each subject that a request reaches."""
        self.asked.append((operation, subject))
        return operation is Operation.SUBJECT_READ and subject is not None and "hidden" not in subject


ADA = {"authorization": "Basic ada"}


@asynccontextmanager
async def restricted(one: Any, authorizer: OnlyReaders) -> AsyncIterator[httpx.AsyncClient]:
    application = Application(one.registry, authorizer=authorizer)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://registry") as http:
        yield http
    await application.close()


async def test_an_authorizer_is_asked_about_every_request(bootstrap: str) -> None:
    async with started(bootstrap) as one:
        only_here = {"schema": '{"type": "record", "name": "OnlyHere", "fields": []}'}
        id = (await one.call("POST", "/subjects/secret/versions", only_here))["id"]
        authorizer = OnlyReaders()
        async with restricted(one, authorizer) as http:
            for _ in range(2):
                # A kept answer is not given to a client that may not have it.
                assert 200 == (await http.get("/subjects/secret/versions", headers=ADA)).status_code
                assert 401 == (await http.get("/subjects/secret/versions")).status_code
            assert 403 == (await http.delete("/subjects/secret", headers=ADA)).status_code
            assert 403 == (await http.put("/config/secret", headers=ADA, content=b"{")).status_code
            assert 403 == (await http.put("/config", headers=ADA, content=b"{")).status_code
            assert 200 == (await http.get(f"/schemas/ids/{id}", headers=ADA)).status_code
            for path in ("/", "/metrics", "/subjects", "/schemas/ids/1", "/config"):
                assert 401 == (await http.get(path)).status_code
        assert [
            *[("SUBJECT_READ", "secret")] * 2,
            ("SUBJECT_DELETE", "secret"),
            ("SUBJECT_COMPATIBILITY_WRITE", "secret"),
            ("SUBJECT_COMPATIBILITY_WRITE", None),
            ("SUBJECT_READ", "secret"),
        ] == authorizer.asked


async def test_what_a_client_may_not_read_does_not_exist_for_it(bootstrap: str) -> None:
    """Also behind an alias, in another context, under another spelling, by its id, and as a reference."""
    async with started(bootstrap) as one:
        await one.call("POST", "/subjects/open/versions", ORDER)
        hidden = {"schema": '{"type": "record", "name": "Hidden", "fields": []}'}
        secret_id = (await one.call("POST", "/subjects/hidden/versions", hidden))["id"]
        await one.call("PUT", "/config/alias", {"alias": "hidden"})
        other = {"schema": '{"type": "record", "name": "Other", "fields": []}'}
        await one.call("POST", "/subjects/:.hidden-context:elsewhere/versions", other)
        async with restricted(one, OnlyReaders()) as http:

            async def status(path: str) -> int:
                return (await http.get(path, headers=ADA)).status_code

            for subjects in (
                (await http.get("/subjects", headers=ADA)).json(),
                [each["subject"] for each in (await http.get("/schemas", headers=ADA)).json()],
            ):
                assert "open" in subjects
                assert [] == [each for each in subjects if "hidden" in each]
            for path in (
                "/subjects/hidden/versions",
                "/subjects/hidden/versions/1",
                "/subjects/hidden/versions/1/schema",
                "/subjects/:.:hidden/versions/1",
                "/contexts/:.:/subjects/hidden/versions/1",
                "/subjects/alias/versions/1",
                "/subjects/alias/versions/1/schema",
                "/subjects/elsewhere/versions/1",
                "/subjects/elsewhere/versions/1/schema",
                "/schemas/guids/00000000-0000-0000-0000-000000000000",
            ):
                assert 403 == await status(path), path
            for path in (
                f"/schemas/ids/{secret_id}",
                f"/schemas/ids/{secret_id}?subject=open",
                f"/schemas/ids/{secret_id}/schema",
                f"/schemas/ids/{secret_id}/schema?subject=open",
                f"/schemas/ids/{secret_id}/subjects",
                f"/schemas/ids/{secret_id}/versions",
                "/schemas/ids/471100",
            ):
                assert 404 == await status(path), path
            reference = {"name": "Hidden", "subject": "hidden", "version": 1}
            asking = {"schema": '"string"', "references": [reference]}
            assert 403 == (await http.post("/subjects/open", headers=ADA, json=asking)).status_code


async def test_a_large_schema_does_not_delay_look_ups(bootstrap: str) -> None:
    """A megabyte is parsed in a thread: look-ups are answered meanwhile."""
    async with started(bootstrap) as one:
        fields = [{"name": f"field_{number}", "type": "string", "default": "x" * 20} for number in range(14_000)]
        large = record("Large", *fields)
        assert len(large["schema"]) > 1_000_000
        registering = asyncio.create_task(one.call("POST", "/subjects/large/versions", large))
        answered = 0
        while not registering.done():
            await one.call("GET", f"/subjects?limit={answered}")
            answered += 1
            await asyncio.sleep(0)  # in this process a look-up never waits
        assert answered > 3
        version = (await registering)["version"]
        assert 1 == version
        assert {"is_compatible": True} == await one.call("POST", "/compatibility/subjects/large/versions/latest", large)


async def test_an_answer_that_a_change_overtook_is_not_kept(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(bootstrap) as one:
        await one.call("POST", "/subjects/overtaken/versions", ORDER)
        read = one.registry.access.read

        async def read_and_change(work: Any) -> Any:
            found = await read(work)
            one.registry.revision += 1
            await one.call("GET", "/subjects")
            return found

        monkeypatch.setattr(one.registry.access, "read", read_and_change)
        path = "/subjects/overtaken/versions/1?format=resolved"
        await one.call("GET", path)
        before = one.application.metrics.cached
        await one.call("GET", path)
        assert before == one.application.metrics.cached
