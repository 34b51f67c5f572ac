"""Charts with a Prometheus that answers, is slow, is away, or answers nonsense; no page waits for it."""

import asyncio
import gzip
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from ottla.console.history import prometheus
from ottla.console.history.options import parse_prometheus
from ottla.console.history.prometheus import Past, Prometheus
from ottla.console.history.ranges import TimeRange
from ottla.console.settings import AuthMode, PrometheusSettings
from ottla.testing import InProcessBroker, SecuredBroker
from tests.broker.console.scripted_prometheus import VALUE, PrometheusServer, running_prometheus, send, send_line
from tests.unit.console.visitor import Visitor
from tests.waiting import wait_until

SIZE = "/samples.json?s=stored:cluster.size:"
RANGE = TimeRange(start=3600, end=7200, step=15, is_moving=True)


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    with running_prometheus() as made:
        yield made


@pytest.fixture
def console(broker: InProcessBroker, visit: Callable[..., Visitor], server: PrometheusServer) -> Visitor:
    """A console that has sampled the cluster, with Prometheus."""
    made = visit(broker.bootstrap, prometheus=parse_prometheus(server.url), sample_seconds=0.2)
    wait_until(lambda: len(made.console.sampler.samples) > 2)
    return made


def _settled(console: Visitor, address: str) -> dict[str, Any]:
    """The chart, once Prometheus has answered or failed."""

    def chart() -> dict[str, Any] | None:
        found: dict[str, Any] = console.get(address).json()
        return None if found["waiting"] else found

    return wait_until(chart) or {}


def test_a_chart_has_the_past_of_the_range_that_its_page_shows(console: Visitor, server: PrometheusServer) -> None:
    page = console.get("/", params={"range": "24h"})
    assert ">24h</a>" in page.text
    assert 'href="/?range=7d"' in page.text
    assert "range=24h" in page.text.split('data-chart="', 1)[1].split('"', 1)[0]
    assert [] == server.asked, "the page itself does not ask"
    chart = _settled(console, f"{SIZE}&range=24h")
    (asked,) = server.asked
    assert ("sum(ottla_log_bytes)", "120") == (asked["query"], asked["step"])
    assert abs(int(asked["end"]) - int(asked["start"]) - 86_400) <= 120
    assert abs(time.time() - int(asked["end"])) < 600
    (series,) = chart["series"]
    assert VALUE == series["values"][0] != series["values"][-1]
    assert int(asked["start"]) == chart["times"][0]
    assert "from Prometheus, sampled by this console since" in chart["note"]
    assert chart["note"].startswith("since ")
    zoomed = _settled(console, f"{SIZE}&from=1000000&to=1003600")
    assert ("999990", "1003590") == (server.asked[-1]["start"], server.asked[-1]["end"])
    assert {VALUE} == set(zoomed["series"][0]["values"])


def test_samples_that_cover_the_range_need_no_prometheus(console: Visitor, server: PrometheusServer) -> None:
    now = time.time()
    chart = _settled(console, f"{SIZE}&from={now - 1}&to={now + 5}")
    assert "sampled by this console" in chart["note"]
    server.asked.clear()
    samples = console.console.sampler.samples
    samples.add(now - 4000, {("x", "y"): 1.0})
    chart = _settled(console, "/samples.json?s=a:x:y")
    assert [] == server.asked, "there is no query for this kind"
    assert "Prometheus has nothing older" in chart["note"]


def test_the_login_is_sent_and_never_shown(
    broker: InProcessBroker,
    visit: Callable[..., Visitor],
    server: PrometheusServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = parse_prometheus(f"http://ada:s3cret-word@{server.address}/", ["job=main"])
    console = visit(broker.bootstrap, prometheus=settings)
    _settled(console, SIZE)
    assert ["Basic YWRhOnMzY3JldC13b3Jk"] == server.logins
    assert 'sum(ottla_log_bytes{job="main"})' == server.asked[0]["query"]
    server.answer = lambda handler, _: send(handler, b"", 401)
    failed = _settled(console, f"{SIZE}&range=7d")
    assert "HTTP status 401" in failed["note"]
    shown = console.get("/").text + console.get("/brokers/0").text + str(failed)
    assert "s3cret-word" not in shown + caplog.text + repr(console.console.settings)
    assert "cannot read history from Prometheus" in caplog.text
    assert "s3cret" not in caplog.text


def _redirect(handler: BaseHTTPRequestHandler, _: dict[str, str]) -> None:
    send(handler, b"", 302, Location="/elsewhere")


def _break_off(handler: BaseHTTPRequestHandler, _: dict[str, str]) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"status":')
    handler.close_connection = True


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda handler, _: send(handler, b"{}"), "not what its API promises"),
        (lambda handler, _: send(handler, b"<html>"), "not what its API promises"),
        (lambda handler, _: send(handler, b"[" * 500_000), "not what its API promises"),
        (lambda handler, _: send(handler, b"x" * 2_000_000), "larger than 1 MiB"),
        (lambda handler, _: send(handler, gzip.compress(b"x" * 9), Content_Encoding="gzip"), "compressed"),
        (lambda handler, _: send(handler, b"", 503), "HTTP status 503"),
        (_redirect, "HTTP status 302"),
        (_break_off, "broke off"),
    ],
)
def test_an_answer_that_cannot_be_used_leaves_the_samples(
    console: Visitor,
    server: PrometheusServer,
    answer: Callable[[BaseHTTPRequestHandler, dict[str, str]], None],
    words: str,
) -> None:
    server.answer = answer
    chart = _settled(console, SIZE)
    assert words in chart["note"]
    assert chart["note"].startswith("since ")
    assert "sampled by this console" in chart["note"]
    assert len(chart["times"]) > 2
    assert VALUE not in chart["series"][0]["values"]
    assert {"/api/v1/query_range"} == set(server.paths)


def test_no_page_and_no_chart_waits_for_a_slow_prometheus(
    console: Visitor, server: PrometheusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()
    has_begun = threading.Event()

    def hold(handler: BaseHTTPRequestHandler, asked: dict[str, str]) -> None:
        has_begun.set()
        is_over.wait(120)
        send_line(handler, asked)

    server.answer = hold
    try:
        waiting = console.get(SIZE).json()
        assert waiting["waiting"]
        assert has_begun.wait(60)
        assert "sampled by this console; waiting for Prometheus" in waiting["note"]
        assert len(waiting["times"]) > 2
        assert 200 == console.get("/").status_code
        assert 200 == console.get("/brokers/0").status_code
        # The query is given up after a while, though nothing was answered.
        monkeypatch.setattr(prometheus, "_QUERY_SECONDS_MAX", 0.2)
        given_up = _settled(console, f"{SIZE}&range=6h")
        assert "did not answer within" in given_up["note"]
        assert not is_over.is_set()
    finally:
        is_over.set()
    assert "from Prometheus" in _settled(console, SIZE)["note"], "an answer that comes late is shown then"


def test_a_prometheus_that_is_away(broker: InProcessBroker, visit: Callable[..., Visitor]) -> None:
    with socket.socket() as taken:
        # Bound and not listening: connections are refused.
        taken.bind(("127.0.0.1", 0))
        console = visit(
            broker.bootstrap, prometheus=PrometheusSettings(url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        )
        wait_until(lambda: len(console.console.sampler.samples) > 0)
        chart = _settled(console, SIZE)
    assert chart["note"].endswith("sampled by this console; Prometheus cannot be connected to")


def test_a_visitor_chooses_a_series_and_nothing_else(console: Visitor, server: PrometheusServer) -> None:
    evil = '"}) or vector(1) #'
    parameters = {
        "s": [f"a:group.lag:{evil}", "b:up:", "c:broker.size:0})"],
        "query": "up",
        "step": "1",
        "timeout": "9h",
    }
    console.get("/samples.json", params=parameters)
    wait_until(lambda: bool(server.asked))
    (asked,) = server.asked
    assert 'sum(ottla_consumer_group_lag{group="\\"}) or vector(1) #"})' == asked["query"]
    assert {"query", "start", "end", "step", "timeout"} == asked.keys()
    assert ("15", "5s") == (asked["step"], asked["timeout"])
    assert ["/api/v1/query_range"] == server.paths


def test_topics_that_the_user_may_not_describe_are_not_asked_for(
    tmp_path: Any, visit: Callable[..., Visitor], server: PrometheusServer
) -> None:
    with SecuredBroker(tmp_path / "secured") as secured:
        for topic in ("mine", "theirs"):
            secured.create_topic(topic)
        secured.allow("alice", "Describe", topic="mine")
        options = {name: value for name, value in secured.client_options().items() if not name.startswith("sasl_")}
        console = visit(
            options.pop("bootstrap_servers"),
            client_options=options,
            auth=AuthMode.CLUSTER,
            prometheus=parse_prometheus(server.url),
        )
        console.get("/login")
        assert 303 == console.post("/login", {"user": "alice", "password": secured.password_of("alice")}).status_code
        for series in ("topic.in:theirs", "group.lag:their-group"):
            assert 403 == console.get(f"/samples.json?s=a:{series}").status_code, series
        assert [] == server.asked
        chart = _settled(console, "/samples.json?s=a:topic.in:mine")
        assert {VALUE} == set(chart["series"][0]["values"]), "a console without samples has Prometheus's values alone"
        assert chart["note"].endswith("UTC, from Prometheus")


def test_queries_are_few_and_what_is_kept_has_a_bound(server: PrometheusServer) -> None:
    is_over = threading.Event()

    def hold(handler: BaseHTTPRequestHandler, asked: dict[str, str]) -> None:
        is_over.wait(120)
        send_line(handler, asked)

    async def ask() -> list[Past]:
        asking = Prometheus(PrometheusSettings(url=server.url), time.monotonic)
        wanted = [TimeRange(start=at * 15, end=at * 15 + 60, step=15, is_moving=False) for at in range(1, 301)]
        try:
            found = await asyncio.gather(*(asking.past("cluster.size", "", each) for each in wanted))
            await asyncio.to_thread(wait_until, lambda: server.at_once == 4)
            return list(found)
        finally:
            is_over.set()
            await asking.close()

    server.answer = hold
    found = asyncio.run(ask())
    assert 4 == server.at_once_max
    assert 128 == sum(each.is_waiting for each in found)
    assert 172 == sum("too many charts" in each.problem for each in found)


async def test_answers_are_kept_and_failures_are_tried_again_later(
    server: PrometheusServer, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    caplog.set_level(logging.INFO)
    asking = Prometheus(PrometheusSettings(url=server.url), lambda: now)

    async def settled() -> Past:
        while (found := await asking.past("cluster.size", "", RANGE)).is_waiting:
            pass
        for kept in asking._kept.values():
            if kept.task is not None:
                await kept.task
        return found

    first = await settled()
    assert (VALUE, RANGE.end) == (first.values[3600], first.end)
    now += 14
    await settled()
    assert 1 == len(server.asked)
    now += 2
    server.answer = lambda handler, _: send(handler, b"", 500)
    assert VALUE == (await settled()).values[3600], "the old answer, while a new one is asked for"
    assert "HTTP status 500" in (await settled()).problem
    assert 2 == len(server.asked)
    server.answer = send_line
    now += 16
    await settled()
    assert VALUE == (await settled()).values[3600]
    assert 3 == len(server.asked)
    server.stop()
    now += 16
    await settled()
    assert "cannot be connected to" in (await settled()).problem
    other = TimeRange(start=3600, end=3660, step=15, is_moving=False)
    assert Past(problem="Prometheus cannot be connected to") == await asking.past("cluster.size", "", other)
    await asking.close()
    assert 1 == caplog.text.count("Prometheus cannot be connected to"), "logged once"
