"""Overview, brokers, search, audit and sign-in on real brokers, without a browser."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ottla.client.admin.cluster_problems import find_problems
from ottla.client.producer.blocking_producer import Producer
from ottla.console.cluster import sampler as sampler_module
from ottla.console.cluster.sampler import Sampler
from ottla.console.services import overview as overview_module
from ottla.console.settings import AuthMode
from ottla.model.errors import DeniedError
from ottla.model.ids import TopicPartition
from ottla.operations.reassignment.throttle import find_throttle, set_throttle
from ottla.testing import BrokerCluster, InProcessBroker, SecuredBroker
from tests.unit.console.visitor import Visitor
from tests.waiting import wait_until


def test_the_overview_is_healthy_and_has_numbers(broker: InProcessBroker, console: Visitor) -> None:
    broker.create_topic("orders", 3)
    page = console.get("/")
    assert 200 == page.status_code
    assert "The cluster is healthy: 1 broker, " in page.text
    wait_until(lambda: "healthy" in console.get("/health-dot").text, "the sampler's first turn")
    assert "<html" not in console.get("/health-dot").text


def test_the_first_page_of_a_console_waits_for_its_first_sample_and_does_not_ask_the_same(
    broker: InProcessBroker, visit: Callable[..., Visitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    asked: list[str] = []

    async def held(*arguments: Any) -> Any:
        await asyncio.to_thread(may_go_on.wait, 60)
        return await find_problems(*arguments)

    async def asks(*_: Any, **__: Any) -> Any:
        asked.append("the page asks")
        raise DeniedError("not now")

    monkeypatch.setattr(sampler_module, "find_problems", held)
    monkeypatch.setattr(overview_module, "probe_brokers", asks)
    console = visit(broker.bootstrap)
    sampler = console.console.sampler
    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(console.get, "/")
        wait_until(lambda: sampler.looked._waiters or page.done())
        may_go_on.set()
        shown = page.result(60)
    assert (200, []) == (shown.status_code, asked)
    assert "The cluster is healthy" in shown.text


def test_the_overview_shows_dead_letters_once_they_are_read(
    broker: InProcessBroker, visit: Callable[..., Visitor]
) -> None:
    for name in ("dlq.returns", "dlq.nothing"):
        broker.create_topic(name)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send("dlq.returns", b"rejected").get(60)
    console = visit(broker.bootstrap)
    wait_until(lambda: "/dead-letters/dlq.returns" in console.get("/").text, "the table of dead letters")
    assert "/dead-letters/dlq.nothing" not in console.get("/").text


@pytest.mark.parametrize(
    "path", ["/brokers/{}", "/topics/t/records/0/{}", "/topics/t/records/{}/0", "/dead-letters/t/0/{}"]
)
@pytest.mark.parametrize("digits", [10, 18, 19, 5000])
def test_an_absurd_number_in_an_address_is_not_found(console: Visitor, path: str, digits: int) -> None:
    assert 404 == console.get(path.format("9" * digits)).status_code


def test_samples_become_series(broker: InProcessBroker, visit: Callable[..., Visitor]) -> None:
    console = visit(broker.bootstrap, sample_seconds=0.05)
    wait_until(lambda: len(console.console.sampler.samples) > 2, "samples")
    answer = console.get("/samples.json", params={"s": ["in:cluster.in:", "stored:cluster.size:"]})
    found = answer.json()
    assert ["in", "stored"] == [each["label"] for each in found["series"]]
    assert len(found["times"]) == len(found["series"][0]["values"]) > 2
    assert found["series"][1]["values"][-1] is not None


def test_brokers_and_their_configs(broker: InProcessBroker, console: Visitor) -> None:
    assert broker.bootstrap in console.get("/brokers").text
    page = console.get("/brokers/0")
    assert "Broker 0" in page.text
    assert "the controller" in page.text
    assert 404 == console.get("/brokers/77").status_code
    configs = console.get("/brokers/0/configs").text
    assert "log.retention.ms" in configs
    assert "num.partitions" in configs


def test_a_config_is_previewed_changed_recorded_and_removed(broker: InProcessBroker, console: Visitor) -> None:
    path = "/brokers/0/configs/log.retention.ms"
    preview = console.get(path, params={"change": "set", "value": "3612345"})
    assert "to 3612345, at once and without a restart" in preview.text
    assert "ottla configs set log.retention.ms=3612345 --broker 0" in preview.text
    assert "3612345" not in console.get("/brokers/0/configs").text
    done = console.post(path, {"change": "set", "value": "3612345"})
    assert (303, "/brokers/0/configs#changed") == (done.status_code, done.headers["location"])
    assert "3612345" in console.get("/brokers/0/configs").text
    audit = console.get("/audit").text
    assert "set broker config" in audit
    assert "3612345" in audit
    assert 303 == console.post(path, {"change": "remove"}).status_code
    assert "3612345" not in console.get("/brokers/0/configs").text


def test_a_value_that_the_broker_refuses_is_said_in_the_preview(console: Visitor) -> None:
    refused = console.get("/brokers/0/configs/log.retention.ms", params={"change": "set", "value": "soon"})
    assert 422 == refused.status_code
    assert "The broker refuses it" in refused.text
    assert "Set config" not in refused.text
    assert 404 == console.get("/brokers/0/configs/no.such.config").status_code


def test_a_read_only_console_refuses_in_the_service_too(broker: InProcessBroker, visit: Callable[..., Visitor]) -> None:
    console = visit(broker.bootstrap, read_only=True)
    path = "/brokers/0/configs/log.retention.ms"
    page = console.get(path, params={"change": "set", "value": "1"})
    assert "read-only" in page.text
    assert 'method="post"' not in page.text.split("<main")[1]
    refused = console.post(path, {"change": "set", "value": "1"})
    assert 403 == refused.status_code
    assert "started with --read-only" in refused.text
    entry = console.console.audit.newest()[0]
    assert ("refused", "set broker config", "broker 0") == (entry.outcome, entry.action, entry.target)


def test_search_finds_topics_brokers_and_pages(broker: InProcessBroker, console: Visitor) -> None:
    broker.create_topic("find-me.events")
    found = console.get("/search.json", params={"q": "FIND-me"}).json()
    assert {"name": "find-me.events", "kind": "topic", "address": "/topics/find-me.events"} == found[0]
    kinds = [each["kind"] for each in console.get("/search.json", params={"q": "broker"}).json()]
    assert {"broker", "page"} <= set(kinds)
    assert "find-me.events" in console.get("/search", params={"q": "me.ev"}).text
    nothing = console.get("/search", params={"q": "<script>alert(1)</script>"}).text
    assert "<script>alert" not in nothing
    assert "Nothing has this in its name" in nothing


def test_a_broker_that_leaves_is_a_problem_in_the_next_turn(
    visit: Callable[..., Visitor], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with BrokerCluster(tmp_path_factory.mktemp("cluster"), brokers=2) as cluster:
        cluster.create_topic("pair", 2, replicas=2)
        console = visit(cluster.bootstrap, sample_seconds=0.2)
        wait_until(lambda: "healthy" in console.get("/health-dot").text, "a healthy cluster")
        cluster.brokers[1].stop()
        wait_until(lambda: "problem" in console.get("/health-dot").text, "a problem")
        wait_until(lambda: "broker 1 is missing" in console.get("/").text, "a missing broker")
        assert "Start it again" in console.get("/").text
        cluster.brokers[1].start()
        wait_until(lambda: "healthy" in console.get("/health-dot").text, "a healthy cluster again")


def test_errors_are_pages_with_a_reason_and_a_request_id(console: Visitor) -> None:
    missing = console.get("/no/such/page")
    assert 404 == missing.status_code
    assert missing.headers["x-request-id"] in missing.text
    as_json = console.get("/no/such/page", headers={"accept": "application/json"}).json()
    assert {"error", "reason", "advice", "request_id"} == set(as_json)
    assert 404 == console.get("/jobs/0123").status_code
    assert 404 == console.get("/login").status_code, "this console has no login"


def test_a_cluster_that_is_away_is_said(visit: Callable[..., Visitor]) -> None:
    console = visit("127.0.0.1:1", sample_seconds=0.05)
    wait_until(lambda: console.console.sampler.status.silent_since_ms, "silence")
    page = console.get("/brokers")
    assert 503 == page.status_code
    assert "The cluster does not answer" in page.text
    assert "No broker has answered since" in page.text
    assert "no answer" in console.get("/health-dot").text
    assert 200 == console.get("/jobs").status_code == console.get("/health").status_code


def test_a_sampler_survives_an_unexpected_error(console: Visitor) -> None:
    faults = [ZeroDivisionError("a fault of the sampler")]

    def clock() -> int:
        if faults:
            raise faults.pop()
        return 1_700_000_000_000

    sampler = Sampler(clock)
    admin = console.access().admin()
    console.run(lambda: sampler.sample(admin))
    assert "a fault of the sampler" == sampler.status.error
    assert sampler.status.silent_since_ms is not None
    console.run(lambda: sampler.sample(admin))
    again = sampler.status
    assert (None, "") == (again.silent_since_ms, again.error)


@pytest.fixture
def login_console(secured: SecuredBroker, visit: Callable[..., Visitor]) -> Visitor:
    options = secured.client_options("admin")
    bootstrap = options.pop("bootstrap_servers")
    return visit(bootstrap, client_options=options, auth=AuthMode.CLUSTER, login_mechanism=options["sasl_mechanism"])


def sign_in(console: Visitor, user: str, password: str, **fields: str) -> Any:
    console.get("/login")
    return console.post("/login", {"user": user, "password": password, **fields})


def test_users_of_the_cluster_sign_in_and_have_their_own_rights(secured: SecuredBroker, login_console: Visitor) -> None:
    console = login_console
    password = secured.client_options("alice")["sasl_plain_password"]
    before = dict(console.client.cookies)
    wrong = sign_in(console, "alice", "wrong")
    assert 401 == wrong.status_code
    assert "check the user name and the password" in wrong.text
    done = sign_in(console, "alice", password, next="/audit?q=x")
    assert (303, "/audit?q=x") == (done.status_code, done.headers["location"])
    assert before != dict(console.client.cookies), "a session has a cookie that was never seen before"
    page = console.get("/")
    assert "Signed in as alice" in page.text
    denied = console.post("/brokers/0/configs/log.retention.ms", {"change": "set", "value": "1"})
    assert 403 == denied.status_code
    assert "No permission" in denied.text
    assert password not in json.dumps([each.details for each in console.console.audit.newest()], default=str)
    session_cookie = dict(console.client.cookies)
    assert 303 == console.post("/logout").status_code
    assert 303 == console.get("/audit").status_code
    console.client.cookies.clear()
    console.client.cookies.update(session_cookie)
    assert 303 == console.get("/audit").status_code, "the old cookie is worth nothing"


def test_a_failed_login_is_logged_with_address_and_user(
    login_console: Visitor, caplog: pytest.LogCaptureFixture
) -> None:
    assert 401 == sign_in(login_console, "mallory\n", "guess").status_code
    lines = [each.getMessage() for each in caplog.records if each.getMessage().startswith("refused request")]
    assert 1 == len(lines)
    assert lines[0].startswith("refused request from testclient: login of user 'mallory\\n': ")
    assert "guess" not in caplog.text


def test_failed_logins_are_limited(login_console: Visitor) -> None:
    for _ in range(5):
        assert 401 == sign_in(login_console, "mallory", "guess").status_code
    limited = sign_in(login_console, "mallory", "guess")
    assert 429 == limited.status_code
    assert "too many failed logins" in limited.text


def test_many_logins_at_once_are_no_more_tries_than_one_after_the_other(login_console: Visitor) -> None:
    login_console.get("/login")
    with ThreadPoolExecutor(12) as threads:
        answers = threads.map(
            lambda number: login_console.post("/login", {"user": "mallory", "password": f"guess {number}"}), range(12)
        )
        assert {401: 5, 429: 7} == Counter(each.status_code for each in answers)


def test_a_second_login_ends_the_first_session(secured: SecuredBroker, login_console: Visitor) -> None:
    password = secured.client_options("alice")["sasl_plain_password"]
    assert 303 == sign_in(login_console, "alice", password).status_code
    first = dict(login_console.client.cookies)
    login_console.get("/jobs")
    assert 303 == login_console.post("/login", {"user": "alice", "password": password}).status_code
    login_console.client.cookies.clear()
    login_console.client.cookies.update(first)
    assert 303 == login_console.get("/jobs").status_code


def test_a_throttle_that_was_left_behind_is_removed(
    console: Visitor, broker: InProcessBroker, visit: Callable[..., Visitor]
) -> None:
    """As after a console was killed while it moved replicas with a throttle."""
    broker.create_topic("was-moved")
    access = console.access()
    place = TopicPartition("was-moved", 0)
    console.run(access.cluster.refresh)
    assert "throttle" not in console.get("/brokers").text
    console.run(lambda: set_throttle(access.cluster, {place: (7,)}, {place: (0,)}, 10_485_760))
    reader = visit(broker.bootstrap, read_only=True)
    assert 'href="/brokers/~throttle"' in reader.get("/brokers").text
    assert 'href="/brokers/~throttle"' in reader.get("/topics/was-moved/move").text
    page = reader.get("/brokers/~throttle").text
    assert "10.0 MiB" in page
    assert "was-moved" in page
    assert "ottla configs unset" in page
    assert "Remove the throttle" not in page
    assert 403 == reader.post("/brokers/~throttle").status_code
    assert "Remove the throttle" in console.get("/brokers/~throttle").text
    assert 303 == console.post("/brokers/~throttle").status_code
    assert "not throttled" in console.get("/brokers/~throttle").text
    found = console.run(lambda: find_throttle(access.cluster, ["was-moved"]))
    assert ({}, ()) == (found.rates, found.topics)
    entry = console.console.audit.newest()[0]
    assert ("remove replication throttle", "done") == (entry.action, entry.outcome)
    assert {"rates": {"all brokers": "10485760"}, "topics": ["was-moved"]} == entry.details
