"""Topics without a browser: the list, one topic, and every change with its preview and its entry in the audit log."""

import html as html_words
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, NewTopic, Producer
from ottla.client.admin.async_admin import OffsetSpec
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource
from ottla.client.network.list_offsets import find_offsets
from ottla.console.cluster.jobs import JobState
from ottla.console.cluster.sampler import Sampler
from ottla.console.errors import InvalidFormError
from ottla.console.services import topics
from ottla.console.services.reassignment import MovePlan
from ottla.console.services.topic_changes import TopicForm, parse_configs
from ottla.model.ids import TopicPartition
from ottla.operations.reassignment.execution import cancel_moves, clear_throttle_of, start_moves
from ottla.operations.reassignment.throttle import find_throttle
from ottla.testing import BrokerCluster, InProcessBroker
from tests.broker.console.shown_form import check_asks_again
from tests.unit.console.visitor import Visitor
from tests.waiting import wait_until


@pytest.fixture
def topic(admin: Admin, broker: InProcessBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new topic with 30 records in three partitions."""
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:200]
    admin.create_topics([NewTopic(name, 3)], wait_for_metadata=True)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(30):
            producer.send(name, b"v", partition=number % 3)
        producer.flush()
    yield name
    if name in admin.list_topics():
        admin.delete_topics([name])


def text_of(html: str) -> str:
    """The words of a page."""
    return re.sub(r"\s+", " ", html_words.unescape(re.sub(r"<[^>]+>", " ", html)))


def test_the_list_has_a_row_for_each_topic(console: Visitor, topic: str) -> None:
    html = console.get("/topics").text
    row = re.search(rf'<tr[^>]*>\s*<td class="name">(?:(?!</tr>).)*{topic}.*?</tr>', html, re.DOTALL)
    assert row is not None
    assert "30" in text_of(row[0])
    assert "delete" in text_of(row[0])
    assert topic not in console.get("/topics?q=nothing-like-this").text.split("</form>")[-1]
    assert "__consumer_offsets" not in html
    for sort in ("name", "-records", "size", "-lag", "in", "out", "partitions", "replicas", "wrong"):
        assert topic in console.get(f"/topics?sort={sort}").text


def test_topics_are_sorted_by_their_records_without_asking_for_all_offsets_again(
    visit: Callable[..., Visitor], admin: Admin, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = visit(broker.bootstrap, sample_seconds=3600.0)
    wait_until(lambda: console.console.sampler.status.answered_at_ms is not None)
    names = [f"sorted-{each}" for each in ("few", "many", "some")]
    admin.create_topics([NewTopic(each, 2) for each in names], wait_for_metadata=True)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for name, count in zip(names, (1, 30, 10), strict=True):
            for number in range(count):
                producer.send(name, b"v", partition=number % 2)
        producer.flush()
    asked: list[int] = []

    async def counted(cluster: Any, wanted: Mapping[TopicPartition, int]) -> Any:
        asked.append(len(wanted))
        return await find_offsets(cluster, wanted)

    def order(sort: str) -> list[str]:
        page = console.get(f"/topics?q=sorted-&sort={sort}").text
        return re.findall(r'href="/topics/(sorted-[a-z]+)">', page)

    async def sample() -> None:
        await console.console.sampler.sample(console.console.own_clients.admin())

    monkeypatch.setattr(topics, "find_offsets", counted)
    console.run(sample)
    assert ["sorted-many", "sorted-some", "sorted-few"] == order("-records")
    asked.clear()
    assert ["sorted-few", "sorted-some", "sorted-many"] == order("records")
    assert [6, 6] == asked, "start and end of the partitions that are shown"
    plan = {"plan": "0,15\n1,15", "confirm": "sorted-many"}
    assert 303 == console.post("/topics/sorted-many/delete-records", plan).status_code
    assert ["sorted-some", "sorted-few", "sorted-many"] == order("-records"), "start offsets are asked for again"
    console.console.sampler._counts = None
    assert ["sorted-some", "sorted-few", "sorted-many"] == order("-records"), "all offsets are asked for"
    admin.delete_topics(names)


def test_typing_a_filter_does_not_ask_again_but_a_reload_does(
    console: Visitor, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_FRESH_SECONDS", 600.0)
    console.get("/topics")
    admin.create_topics([NewTopic("just-created", 1)], wait_for_metadata=True)
    typed = console.get("/topics?q=just-created", headers={"HX-Request": "true"})
    assert "/topics/just-created" not in typed.text
    assert 'href="/topics/just-created"' in console.get("/topics?q=just-created").text
    assert 'href="/topics/just-created"' in console.get("/topics?q=just", headers={"HX-Request": "true"}).text
    admin.delete_topics(["just-created"])


@pytest.mark.parametrize("tab", ["", "/partitions", "/groups", "/config", "/schema", "/records"])
def test_every_tab_of_a_topic(console: Visitor, topic: str, tab: str) -> None:
    response = console.get(f"/topics/{topic}{tab}")
    assert 200 == response.status_code
    assert 'aria-current="page"' in response.text.split('class="tabs"')[1]
    assert 404 == console.get(f"/topics/missing{tab}").status_code


def test_groups_that_are_not_known_are_not_said_to_be_none(
    console: Visitor, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sampler, "has_counts", property(lambda self: False))
    assert "Lag of groups –" in text_of(console.get(f"/topics/{topic}").text)
    groups = text_of(console.get(f"/topics/{topic}/groups").text)
    assert ("is not known: the console has no sample" in groups, "No group" in groups) == (True, False)
    assert "Whether groups read it is not known." in text_of(console.get(f"/topics/{topic}/delete").text)
    monkeypatch.undo()
    wait_until(lambda: "Lag of groups 0" in text_of(console.get(f"/topics/{topic}").text))


def test_partitions_have_leaders_and_offsets(console: Visitor, topic: str) -> None:
    words = text_of(console.get(f"/topics/{topic}/partitions").text)
    assert "3 partitions" in words
    assert 3 == words.count("in sync")


def test_configs_have_documentation_and_defaults(console: Visitor, topic: str, admin: Admin) -> None:
    admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"max.message.bytes": "1234567"})])
    html = console.get(f"/topics/{topic}/config").text
    row = re.search(r'<tr>\s*<td class="short"><code>max\.message\.bytes.*?</tr>', html, re.DOTALL)
    assert row is not None
    assert "1234567" in row[0]
    assert "1048588" in row[0]
    assert "largest" in row[0].lower()
    assert html.index("<code>max.message.bytes") < html.index("<code>cleanup.policy")
    edit = text_of(console.get(f"/topics/{topic}/config?edit=retention.ms").text)
    assert f"ottla configs set retention.ms=VALUE --topic {topic}" in edit


def config_of(admin: Admin, topic: str, name: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic, [name])
    return admin.describe_configs([resource])[resource][name].value


def test_a_config_is_set_and_reset(console: Visitor, topic: str, admin: Admin) -> None:
    response = console.post(f"/topics/{topic}/config", {"name": "retention.ms", "value": "5000"})
    assert (303, f"/topics/{topic}/config") == (response.status_code, response.headers["location"])
    assert "5000" == config_of(admin, topic, "retention.ms")
    assert 303 == console.post(f"/topics/{topic}/config", {"name": "retention.ms", "action": "reset"}).status_code
    assert "604800000" == config_of(admin, topic, "retention.ms")
    wrong = console.post(f"/topics/{topic}/config", {"name": "retention.ms", "value": "soon"})
    assert 422 == wrong.status_code
    assert "retention.ms" in text_of(wrong.text)


def test_a_topic_is_checked_then_created(console: Visitor, admin: Admin) -> None:
    values = {"name": "made-here", "partitions": "4", "replication_factor": "", "configs": "cleanup.policy=compact"}
    words = text_of(console.get("/topics/~create", params=values).text)
    assert "Creates topic made-here with 4 partitions, 1 replica each." in words
    assert "ottla topics create made-here --partitions 4 --config cleanup.policy=compact" in words
    assert "made-here" not in admin.list_topics()
    assert "made-here" not in console.get("/topics").text
    response = console.post("/topics/~create", values)
    assert 'href="/topics/made-here"' in console.get("/topics").text
    assert (303, "/topics/made-here") == (response.status_code, response.headers["location"])
    assert 4 == len(admin.describe_topics(["made-here"])["made-here"].partitions)
    assert "compact" == config_of(admin, "made-here", "cleanup.policy")
    entry = console.console.audit.newest()[0]
    assert ("create topic", "made-here", "done") == (entry.action, entry.target, entry.outcome)
    again = console.get("/topics/~create", params=values)
    assert 422 == again.status_code
    assert "already exists" in text_of(again.text)


@pytest.mark.parametrize(
    "values",
    [
        {"name": "a b"},
        {"name": "x", "partitions": "0"},
        {"name": "x", "partitions": "many"},
        {"name": "x", "replication_factor": "99"},
        {"name": "x", "configs": "no equals sign"},
        {"name": "x", "configs": "no.such.config=1"},
        {"name": "<script>alert(1)</script>"},
    ],
)
def test_a_topic_that_cannot_be_created_says_why(console: Visitor, admin: Admin, values: dict[str, str]) -> None:
    response = console.get("/topics/~create", params=values)
    assert 422 == response.status_code
    assert 'class="invalid"' in response.text
    assert "<script>alert" not in response.text
    assert 422 == console.post("/topics/~create", values).status_code
    assert "x" not in admin.list_topics()


def test_partitions_are_added(console: Visitor, topic: str, admin: Admin) -> None:
    assert f"ottla topics add-partitions {topic} 4" in text_of(console.get(f"/topics/{topic}/grow").text)
    assert 303 == console.post(f"/topics/{topic}/grow", {"count": "5"}).status_code
    assert 5 == len(admin.describe_topics([topic])[topic].partitions)
    assert 422 == console.post(f"/topics/{topic}/grow", {"count": "2"}).status_code


def test_a_topic_is_deleted_by_its_name_only(console: Visitor, topic: str, admin: Admin) -> None:
    assert "30 records in 3 partitions" in text_of(console.get(f"/topics/{topic}/delete").text)
    check_asks_again(console.post(f"/topics/{topic}/delete", {"confirm": "<b>something else"}), "<b>something else")
    assert topic in admin.list_topics()
    assert "/topics" == console.post(f"/topics/{topic}/delete", {"confirm": topic}).headers["location"]
    assert topic not in admin.list_topics()
    assert f'href="/topics/{topic}"' not in console.get("/topics").text


def test_records_are_deleted_before_a_position(console: Visitor, topic: str, admin: Admin) -> None:
    words = text_of(console.get(f"/topics/{topic}/delete-records?before=4").text)
    assert "Deletes 12 records in 3 partitions" in words
    assert f"ottla topics delete-records {topic} --before 4" in words
    assert 422 == console.get(f"/topics/{topic}/delete-records?before=soon").status_code
    plan = "0,4\n1,4\n2,4"
    again = console.post(f"/topics/{topic}/delete-records", {"plan": plan, "before": "4", "confirm": "x"})
    check_asks_again(again, "x")
    assert (plan, "4") == tuple(hidden_fields(again.text)[name] for name in ("plan", "before"))
    assert 422 == console.post(f"/topics/{topic}/delete-records", {"plan": "0,x", "confirm": topic}).status_code
    starts = dict.fromkeys([TopicPartition(topic, each) for each in range(3)], OffsetSpec.EARLIEST)
    assert [0, 0, 0] == [each.offset for each in admin.list_offsets(starts).values()]
    assert 303 == console.post(f"/topics/{topic}/delete-records", {"plan": plan, "confirm": topic}).status_code
    assert [4, 4, 4] == [each.offset for each in admin.list_offsets(starts).values()]


@pytest.mark.parametrize("before", ["1969-12-31T23:59:59.999Z", "99999d"])
def test_no_records_are_from_before_1970(console: Visitor, topic: str, before: str) -> None:
    assert "No records are before" in console.get(f"/topics/{topic}/delete-records", params={"before": before}).text


def hidden_fields(html: str) -> dict[str, str]:
    """What the forms of a page send besides what a person types."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', html)
    return {name: html_words.unescape(value) for name, value in found}


def test_records_after_the_preview_are_not_deleted(
    console: Visitor, topic: str, admin: Admin, broker: InProcessBroker
) -> None:
    fields = hidden_fields(console.get(f"/topics/{topic}/delete-records?before=end").text)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"written while the person reads the preview", partition=1).get(30)
    assert 303 == console.post(f"/topics/{topic}/delete-records", {**fields, "confirm": topic}).status_code
    starts = dict.fromkeys([TopicPartition(topic, each) for each in range(3)], OffsetSpec.EARLIEST)
    assert [10, 10, 10] == [each.offset for each in admin.list_offsets(starts).values()]


def test_a_topic_that_was_created_again_is_not_the_one_that_was_shown(
    console: Visitor, topic: str, admin: Admin
) -> None:
    pages = ("delete", "delete-records?before=end")
    forms = [hidden_fields(console.get(f"/topics/{topic}/{page}").text) for page in pages]
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 3)], wait_for_metadata=True)
    for page, fields in zip(pages, forms, strict=True):
        refused = console.post(f"/topics/{topic}/{page.partition('?')[0]}", {**fields, "confirm": topic})
        assert 422 == refused.status_code
        assert "was deleted and created again" in refused.text
    assert topic in admin.list_topics()
    fields = hidden_fields(console.get(f"/topics/{topic}/delete").text)
    assert 303 == console.post(f"/topics/{topic}/delete", {**fields, "confirm": topic}).status_code


def test_a_read_only_console_changes_nothing(
    visit: Callable[..., Visitor], broker: InProcessBroker, topic: str, admin: Admin
) -> None:
    console = visit(broker.bootstrap, read_only=True)
    before = admin.describe_topics([topic])[topic]
    for path, form in (
        ("/topics/~create", {"name": "forbidden"}),
        (f"/topics/{topic}/config", {"name": "retention.ms", "value": "1"}),
        (f"/topics/{topic}/grow", {"count": "9"}),
        (f"/topics/{topic}/delete", {"confirm": topic}),
        (f"/topics/{topic}/delete-records", {"plan": "0,1", "confirm": topic}),
    ):
        assert 403 == console.post(path, form).status_code, path
    assert before == admin.describe_topics([topic])[topic]
    assert "forbidden" not in admin.list_topics()
    assert "604800000" == config_of(admin, topic, "retention.ms")
    assert "Create topic" not in console.get("/topics").text


def test_forms_and_plans_in_words() -> None:
    assert {"a": "1", "b": "x=y"} == parse_configs("a = 1\n\nb=x=y\n")
    with pytest.raises(InvalidFormError, match="not a config"):
        parse_configs("a")
    words = TopicForm(name="t", replication_factor=2, configs={"a": "b"}).words()
    assert ["topics", "create", "t", "--replication-factor", "2", "--config", "a=b"] == words


def plan_of(moves: Mapping[int, tuple[int, ...]], copied: int, rate: int | None) -> MovePlan:
    present = {TopicPartition("t", each): (0, 1) for each in moves}
    return MovePlan(
        topic="t",
        brokers=(0, 1, 2),
        replication_factor=None,
        bytes_per_second=rate,
        moves={TopicPartition("t", each): replicas for each, replicas in moves.items()},
        present=present,
        copied_bytes=copied,
        busiest_bytes=copied,
    )


def test_a_plan_says_its_exact_effect() -> None:
    assert "Nothing to move" in plan_of({}, 0, None).sentence
    assert "Changes the order of replicas of 1 partition" in plan_of({0: (1, 0)}, 0, None).sentence
    assert "Removes 2 replicas of 2 partitions; copies nothing." == plan_of({0: (1,), 1: (0,)}, 0, None).sentence
    twelve = dict.fromkeys(range(12), (0, 2))
    assert (
        "Moves 12 partitions: 12 new replicas, about 3.12 GiB, at 20.0 MiB/s for each broker: 2 min 40 s."
        == plan_of(twelve, 160 * 20 * 1024**2, 20 * 1024**2).sentence
    )
    assert "as fast as brokers can copy" in plan_of(twelve, 1, None).sentence


@pytest.mark.slow
def test_replicas_are_moved_as_a_job(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "cluster", brokers=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assignment = {each: [0] for each in range(4)}
        admin.create_topics([NewTopic("moved", replica_assignments=assignment)], wait_for_metadata=True)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(40):
                producer.send("moved", bytes(1000), partition=number % 4)
            producer.flush()
        console = visit(cluster.bootstrap)
        page = text_of(console.get("/topics/moved/move?broker=1&broker=2&throttle=10m").text)
        assert "Moves 4 partitions: 4 new replicas, about" in page
        assert "ottla cluster reassign generate --brokers 1,2 --topic moved > plan.json" in page
        assert "ottla cluster reassign execute plan.json --throttle 10m" in page
        assert 422 == console.get("/topics/moved/move?broker=1&replication_factor=2").status_code
        form: Any = console.form("/topics/moved/move?broker=1&broker=2&throttle=10m")
        assert ["1", "2"] == form["broker"]
        other = console.post("/topics/moved/move", {**form, "broker": ["1"]})
        assert (422, True) == (other.status_code, "since this plan was shown" in other.text)
        response = console.post("/topics/moved/move", form)
        assert 303 == response.status_code
        job = console.console.jobs.find(response.headers["location"].removeprefix("/jobs/"))
        wait_until(lambda: console.get(job.address) and job.state is not JobState.RUNNING)
        assert (JobState.DONE, True) == (job.state, job.outcome.startswith("moved 4 partitions")), job.outcome
        found = admin.describe_topics(["moved"])["moved"]
        assert {1, 2} == {broker for each in found.partitions for broker in each.replicas}
        assert not config_of(admin, "moved", "leader.replication.throttled.replicas")
        entry = next(each for each in console.console.audit.newest() if each.action == "reassign replicas of topic")
        assert ("moved", "done") == (entry.target, entry.outcome)


@pytest.mark.slow
def test_a_throttle_is_left_only_when_nothing_is_being_moved(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    """As after a console was killed: nothing watches the move, and nothing removes its throttle."""
    with BrokerCluster(tmp_path / "cluster", brokers=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        for topic in ("moved", "other"):
            admin.create_topics([NewTopic(topic, replica_assignments={0: [0]})], wait_for_metadata=True)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for _ in range(200):
                producer.send("moved", os.urandom(10_000))
        console = visit(cluster.bootstrap)
        access, place = console.access(), TopicPartition("moved", 0)
        console.run(lambda: start_moves(access.cluster, {place: (1,)}, 100_000))
        page = text_of(console.get("/brokers/~throttle").text)
        assert "1 partition moving" in page
        assert "Remove the throttle" not in page
        assert "/brokers/~throttle" not in console.get("/brokers").text
        refused = console.post("/brokers/~throttle")
        assert (422, True) == (refused.status_code, "still moving" in refused.text)
        # The end of another move leaves the rates of brokers to this one.
        console.run(lambda: clear_throttle_of(access.cluster, [TopicPartition("other", 0)]))
        assert console.run(lambda: find_throttle(access.cluster, ["moved"])).rates
        console.run(lambda: cancel_moves(access.cluster, [place]))
        console.console.own_clients.remembered.forget("left throttle")
        assert "/brokers/~throttle" in console.get("/brokers").text
        assert 303 == console.post("/brokers/~throttle").status_code
        assert not console.run(lambda: find_throttle(access.cluster, ["moved"]))
