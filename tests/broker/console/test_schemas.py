"""Schemas: comparisons without a registry, and all pages on a real registry."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ottla.testing import ProcessBroker, SecuredBroker
from tests.broker.console.shown_form import ShownForm, check_asks_again
from tests.processes import OTTLA, Program
from tests.unit.console.test_schemas import order
from tests.unit.console.visitor import Visitor
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessBroker]:
    """A broker with a registry."""
    with ProcessBroker(tmp_path_factory.mktemp("broker"), registry=True) as made:
        yield made


@pytest.fixture
def url(registered: ProcessBroker) -> str:
    return registered.wait_registry()


@pytest.fixture
def console(registered: ProcessBroker, url: str, visit: Callable[..., Visitor]) -> Visitor:
    return visit(registered.bootstrap, registry_url=url)


def register(url: str, subject: str, schema: str, kind: str = "AVRO", **more: Any) -> None:
    path = f"{url}/subjects/{subject.replace('/', '%2F')}/versions"
    response = httpx.post(path, json={"schema": schema, "schemaType": kind, **more})
    assert 200 == response.status_code, response.text


def test_pages_of_a_subject(console: Visitor, url: str) -> None:
    register(url, "orders-value", order())
    register(url, "orders-value", order({"name": "amount", "type": "int", "default": 0}))
    register(url, ":.staging:orders-value", order())
    register(url, "<script>alert(1)</script>/x", '{"type": "object"}', "JSON")
    listed = console.get("/schemas").text
    assert "3 subjects" in listed
    assert "BACKWARD" in listed
    assert "<script>alert(1)" not in listed
    shown = console.get("/schemas/orders-value").text
    for words in ("Order.amount", "TopicNameStrategy", "shop.Order", "version 1 to 2"):
        assert words in shown
    odd = console.get("/schemas/%3Cscript%3Ealert(1)%3C%2Fscript%3E%2Fx")
    assert (200, False) == (odd.status_code, "<script>alert" in odd.text)
    assert 404 == console.get("/schemas/nope").status_code
    assert 404 == console.get("/schemas/orders-value?version=9").status_code


def test_a_schema_is_checked_then_registered(console: Visitor, url: str) -> None:
    register(url, "checked-value", order())
    bad = {
        "subject": "checked-value",
        "type": "AVRO",
        "schema": order({"name": "must", "type": "int"}),
        "do": "register",
    }
    refused = console.post("/schemas/-/register", bad)
    assert 422 == refused.status_code
    assert "must" in refused.text
    assert "not compatible" in refused.text
    assert [1] == httpx.get(f"{url}/subjects/checked-value/versions").json()
    invalid = console.post("/schemas/-/register", {**bad, "schema": "{"})
    assert (422, True) == (invalid.status_code, "not a valid schema" in invalid.text)
    reference = console.post("/schemas/-/register", {**bad, "references": "a to b"})
    shown = ShownForm(reference.text)
    assert (422, ["references"]) == (reference.status_code, shown.marked)
    assert (bad["schema"], "a to b") == (shown.values["schema"], shown.values["references"])
    same = console.post("/schemas/-/register", {**bad, "schema": order()})
    assert "already registered" in same.text
    good = {**bad, "schema": order({"name": "may", "type": "int", "default": 1})}
    previewed = console.post("/schemas/-/register", {**good, "do": "check"})
    assert (200, True) == (previewed.status_code, "It becomes version 2" in previewed.text)
    assert [1] == httpx.get(f"{url}/subjects/checked-value/versions").json()
    done = console.post("/schemas/-/register", good)
    assert (303, "/schemas/checked-value?version=2") == (done.status_code, done.headers["location"])
    assert [1, 2] == httpx.get(f"{url}/subjects/checked-value/versions").json()
    assert "register schema" in [each.action for each in console.console.audit.newest()]


def test_deletes_ask_for_the_name(console: Visitor, url: str) -> None:
    register(url, "gone-value", order())
    address = "/schemas/-/delete?subject=gone-value"
    assert "id " in console.get(address).text
    check_asks_again(console.post(address, {"confirm": "other"}), "other")
    assert [1] == httpx.get(f"{url}/subjects/gone-value/versions").json()
    assert 303 == console.post(address, {"confirm": "gone-value"}).status_code
    assert 404 == httpx.get(f"{url}/subjects/gone-value/versions").status_code
    assert "soft-deleted" in console.get("/schemas/gone-value").text
    assert "gone-value" in console.get("/schemas?show=deleted").text
    assert "gone-value" not in console.get("/schemas").text
    done = console.post(f"{address}&permanent=1", {"confirm": "gone-value"})
    assert (303, "/schemas") == (done.status_code, done.headers["location"])
    assert [] == httpx.get(f"{url}/subjects", params={"subjectPrefix": "gone", "deleted": "true"}).json()


def test_references_both_ways(console: Visitor, url: str) -> None:
    register(url, "customer.proto", 'syntax = "proto3"; message Customer { string id = 1; }', "PROTOBUF")
    using = 'syntax = "proto3"; import "customer.proto"; message Sale { Customer who = 1; }'
    named = [{"name": "customer.proto", "subject": "customer.proto", "version": 1}]
    register(url, "sales-value", using, "PROTOBUF", references=named)
    assert "/schemas/customer.proto?version=1" in console.get("/schemas/sales-value").text
    assert "/schemas/sales-value?version=1" in console.get("/schemas/customer.proto").text
    address = "/schemas/-/delete?subject=customer.proto&version=1"
    assert "refuses to delete" in console.get(address).text
    assert 400 <= console.post(address, {"confirm": "customer.proto"}).status_code < 500
    assert [1] == httpx.get(f"{url}/subjects/customer.proto/versions").json()


def test_level_and_mode(console: Visitor, url: str) -> None:
    register(url, "set-value", order())
    address = "/schemas/-/level?subject=set-value&level=FULL"
    assert "BACKWARD becomes FULL" in console.get(address).text
    assert 303 == console.post(address).status_code
    assert {"compatibilityLevel": "FULL"} == httpx.get(f"{url}/config/set-value").json()
    assert 303 == console.post("/schemas/-/level?subject=set-value&level=").status_code
    assert 404 == httpx.get(f"{url}/config/set-value").status_code
    assert 303 == console.post("/schemas/-/mode?subject=set-value&mode=READONLY").status_code
    assert {"mode": "READONLY"} == httpx.get(f"{url}/mode/set-value").json()
    assert 422 == console.post("/schemas/-/level?subject=set-value&level=WRONG").status_code


@pytest.mark.slow
def test_a_registry_with_logins_shows_what_the_user_may_read(tmp_path: Path, visit: Callable[..., Visitor]) -> None:
    with SecuredBroker(tmp_path / "secured") as secured, login_registry(secured, tmp_path) as url:
        admin = secured.password_of("admin")
        for subject in ("mine-value", "other-value"):
            register(url.replace("//", f"//admin:{admin}@"), subject, order())
        secured.allow("alice", "Read", topic=":subject:mine-value")
        options = secured.client_options("alice")
        given = {"registry_url": url, "registry_username": "alice", "registry_password": secured.password_of("alice")}
        console = visit(options.pop("bootstrap_servers"), client_options=options, **given)
        wait_until(lambda: "mine-value" in console.get("/schemas").text)
        listed = console.get("/schemas").text
        assert "other-value" not in listed
        assert "not permitted (DESCRIBE_CONFIGS on all subjects)" in listed
        assert "not permitted: DESCRIBE_CONFIGS on the subject" in console.get("/schemas/mine-value").text
        assert console.get("/schemas/other-value").status_code in (403, 404)
        refused = console.post("/schemas/-/delete?subject=mine-value", {"confirm": "mine-value"})
        assert (403, True) == (refused.status_code, "The schema registry refused" in refused.text)
        assert secured.password_of("alice") not in listed + refused.text


@contextmanager
def login_registry(secured: SecuredBroker, folder: Path) -> Iterator[str]:
    """A registry process whose clients log in as users of the cluster."""
    properties = folder / "registry.properties"
    properties.write_text(secured.client_properties())
    bootstrap = secured.bootstrap_of("SASL_SSL")
    command = [*OTTLA, "registry", "serve", "--bootstrap", bootstrap, "--super-user", "User:admin"]
    command += ["--command-config", str(properties), "--listen", "127.0.0.1:0", "--authentication", "cluster"]
    with Program(command, folder / "registry") as registry:
        yield registry.wait_ready()


@pytest.mark.slow
def test_without_and_away(registered: ProcessBroker, url: str, visit: Callable[..., Visitor]) -> None:
    none = visit(registered.bootstrap).get("/schemas")
    assert (200, True) == (none.status_code, "ottla registry serve" in none.text)
    away = visit(registered.bootstrap, registry_url="http://127.0.0.1:1").get("/schemas/x")
    assert (503, True) == (away.status_code, "does not answer" in away.text)
    only = visit(registered.bootstrap, registry_url=url.replace("//", "//me:secret-word@"), read_only=True)
    register(url, "kept-value", order())
    assert 403 == only.post("/schemas/-/delete?subject=kept-value", {"confirm": "kept-value"}).status_code
    assert [1] == httpx.get(f"{url}/subjects/kept-value/versions").json()
    assert "secret-word" not in only.get("/schemas/kept-value").text
