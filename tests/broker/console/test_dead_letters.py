"""Pages about dead letters: grouped, inspected, copied, redriven as a job, purged, against a real broker."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.producer.blocking_producer import Producer
from ottla.client.values import ConsumerRecord
from ottla.console.cluster.jobs import Job, JobState
from ottla.console.services import dead_letters
from ottla.console.services.dead_letters import in_buckets, newest_bounds
from ottla.model.dead_letters import DeadLetter, Origin, story_headers
from ottla.model.ids import TopicPartition
from ottla.operations.dead_letters.letters import LetterFilter
from ottla.testing import InProcessBroker
from tests.broker.console.shown_form import ShownForm, check_asks_again
from tests.topic_contents import read_committed
from tests.unit.console.visitor import Visitor
from tests.waiting import wait_until

EVIL = "<script>alert('x')</script>"


@pytest.fixture
def topic(broker: InProcessBroker) -> str:
    """A topic with an empty dead-letter topic."""
    name = f"t-{uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    broker.create_topic(f"dlq.{name}", partitions=2)
    return name


def die(broker: InProcessBroker, topic: str, count: int, reason: str, *, group: str = "billing") -> None:
    """Writes dead letters of a topic, to both partitions in turn."""
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for at in range(count):
            story = DeadLetter(
                origin=Origin(topic=topic, partition=at % 2, offset=at), reason=reason, group=group, attempts=3
            )
            value = b'{"html": "%s", "at": %d}' % (EVIL.encode(), at)
            headers = [("trace", b"\xff"), *story_headers(story)]
            producer.send(f"dlq.{topic}", value, b"k%d" % at, headers, partition=at % 2)


def read(broker: InProcessBroker, topic: str) -> list[ConsumerRecord]:
    return read_committed(broker.bootstrap, topic)


def wait(job: Job, condition: Callable[[], bool]) -> None:
    wait_until(lambda: condition(), lambda: (job.state, job.outcome, job.note))


def job_of(console: Visitor, response: Any) -> Job:
    address: str = response.headers["location"]
    return console.console.jobs.find(address.removeprefix("/jobs/"))


# Looking


def test_topics_are_listed(console: Visitor, broker: InProcessBroker, admin: Admin, topic: str) -> None:
    die(broker, topic, 3, "timeout")
    broker.create_topic(f"{topic}-lost")
    admin.create_topics([_with_dead_letters(f"{topic}-b", f"{topic}-lost")])
    page = console.get("/dead-letters").text
    assert f'href="/dead-letters/dlq.{topic}"' in page
    assert f'href="/dead-letters/{topic}-lost"' in page
    assert f'href="/topics/{topic}-b"' in page


def _with_dead_letters(name: str, dead: str) -> NewTopic:
    return NewTopic(name, 1, 1, topic_configs={"errors.deadletterqueue.topic.name": dead})


def test_a_first_letter_is_explained(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "empty") as empty:
        page = visit(empty.bootstrap).get("/dead-letters").text
    assert "ottla queues create orders --retry --group billing" in page


def test_letters_are_grouped_and_filtered(console: Visitor, broker: InProcessBroker, topic: str) -> None:
    die(broker, topic, 4, "timeout")
    die(broker, topic, 2, EVIL, group="audit")
    page = console.get(f"/dead-letters/dlq.{topic}").text
    assert "6 letters, 2 causes;\nscanned 6 of 6." in page
    assert (False, True) == (EVIL in page, "&lt;script&gt;" in page)
    only = console.get(f"/dead-letters/dlq.{topic}?group=audit").text
    assert "2 letters match, 1 cause" in only
    assert f"ottla queues dead-letters list dlq.{topic} --group audit" in only
    assert f'href="/dead-letters/dlq.{topic}/redrive?group=audit"' in only
    assert "No letter matches" in console.get(f"/dead-letters/dlq.{topic}?reason=nonsense").text
    utc = console.get(f"/dead-letters/dlq.{topic}?since=2024-05-01T12:00").text
    assert "--since 2024-05-01T12:00:00+00:00" in utc
    wrong = console.get(f"/dead-letters/dlq.{topic}?since=yesterday")
    assert (422, True) == (wrong.status_code, "is not a valid time" in wrong.text)
    assert 404 == console.get("/dead-letters/dlq.no-such-topic").status_code


def test_a_scan_is_bounded_and_says_so(console: Visitor, broker: InProcessBroker, topic: str) -> None:
    die(broker, topic, 20, "timeout")
    page = console.get(f"/dead-letters/dlq.{topic}?scan=6").text
    assert "scanned 6 of 20 (the newest of each partition)" in page
    assert "scan=60" in page
    access = console.access()
    summary = console.run(lambda: dead_letters.summarize(access, f"dlq.{topic}", LetterFilter(), 6))
    assert [7, 7, 8, 8, 9, 9] == sorted(row.letter.record.offset for row in summary.rows)


def test_causes_are_told_apart_up_to_a_bound(
    console: Visitor, broker: InProcessBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "CAUSES_MAX", 2)
    for number in range(4):
        die(broker, topic, 2, f"order {number} has no price")
    page = console.get(f"/dead-letters/dlq.{topic}").text
    assert "more than 2 causes" in page
    assert "4 letters with further causes" in page
    assert "the newest 8 of 8" in page


def test_the_newest_offsets() -> None:
    one, two, three = (TopicPartition("d", index) for index in range(3))
    bounds = {one: (0, 100), two: (10, 12), three: (5, 50)}
    assert {one: (91, 100), two: (10, 12), three: (41, 50)} == newest_bounds(bounds, 20)
    assert bounds == newest_bounds(bounds, 1000)
    assert {one: (100, 100)} == newest_bounds({one: (0, 100)}, 0)


def test_buckets_have_no_gaps_and_keep_the_count() -> None:
    assert (60_000, []) == in_buckets({})
    size, buckets = in_buckets({0: 1, 5: 2})
    assert (60_000, [1, 0, 0, 0, 0, 2]) == (size, [each.letters for each in buckets])
    size, buckets = in_buckets({0: 3, 60 * 24 * 365 * 50: 4})
    assert (True, 7) == (len(buckets) <= 49, sum(each.letters for each in buckets))


def test_one_letter(console: Visitor, broker: InProcessBroker, topic: str) -> None:
    die(broker, topic, 1, EVIL)
    page = console.get(f"/dead-letters/dlq.{topic}/0/0")
    assert (200, False) == (page.status_code, EVIL in page.text)
    assert f"{topic}/0/0" in page.text
    assert "__dlq.errors.message" in page.text
    assert f"ottla queues dead-letters show dlq.{topic} 0:0" in page.text
    assert 404 == console.get(f"/dead-letters/dlq.{topic}/0/7").status_code


# Changes


def test_a_copy_is_edited_and_sent(console: Visitor, broker: InProcessBroker, topic: str) -> None:
    die(broker, topic, 1, "price")
    form = console.get(f"/dead-letters/dlq.{topic}/0/0/edit").text
    assert "trace=hex:ff" in form
    fields = {
        "topic": topic,
        "partition": "1",
        "key_form": "null",
        "key": "",
        "value_form": "text",
        "value": '{"price":\r\n 3}',
        "headers": "trace=hex:ff\r\nempty",
    }
    done = console.post(f"/dead-letters/dlq.{topic}/0/0/edit", fields)
    assert (303, f"/topics/{topic}/records?partition=1&from=0") == (done.status_code, done.headers.get("location"))
    (sent,) = read(broker, topic)
    assert (1, None, b'{"price":\n 3}') == (sent.partition, sent.key, sent.value)
    assert (("trace", b"\xff"), ("empty", None)) == tuple(sent.headers)
    wrong = console.post(f"/dead-letters/dlq.{topic}/0/0/edit", {**fields, "partition": "9"})
    assert (422, True) == (wrong.status_code, "has no partition 9" in wrong.text)
    wrong = console.post(f"/dead-letters/dlq.{topic}/0/0/edit", {**fields, "value_form": "hex"})
    shown = ShownForm(wrong.text)
    assert (422, {**fields, "value_form": "hex"}, ["value"]) == (wrong.status_code, shown.values, shown.marked)


def test_a_redrive_is_a_job_with_a_dry_run_before_it(console: Visitor, broker: InProcessBroker, topic: str) -> None:
    die(broker, topic, 4, "timeout")
    die(broker, topic, 3, "price")
    fields = {"reason": "timeout", "rate": "1000"}
    page = console.get(f"/dead-letters/dlq.{topic}/redrive?{urlencode(fields)}").text
    assert "Sends 4 letters at 1000 in a second" in page
    assert f"ottla queues dead-letters redrive dlq.{topic} --reason timeout --rate 1000 --yes" in page
    assert [] == read(broker, topic)
    job = job_of(console, console.send_form(f"/dead-letters/dlq.{topic}/redrive?{urlencode(fields)}"))
    wait(job, lambda: job.state is not JobState.RUNNING)
    assert (JobState.DONE, f"redriven 4 to {topic}", 4, 4) == (job.state, job.outcome, job.done, job.total)
    assert 4 == len(read(broker, topic))
    again = console.get(f"/dead-letters/dlq.{topic}/redrive?reason=timeout").text
    assert "No letters to redrive" in again
    assert "Sends 3 letters" in console.get(f"/dead-letters/dlq.{topic}/redrive").text


def test_a_stopped_redrive_continues_later_and_sends_none_twice(
    console: Visitor, broker: InProcessBroker, topic: str
) -> None:
    die(broker, topic, 6, "timeout")
    job = job_of(console, console.send_form(f"/dead-letters/dlq.{topic}/redrive?rate=0.5"))
    wait(job, lambda: job.done >= 1)
    console.run(job.stop)
    assert JobState.STOPPED is job.state
    newest = console.console.audit.newest()[0]
    assert ("redrive dead letters", "done") == (newest.action, newest.outcome)
    assert f"stopped: redriven {job.done} to {topic}" == job.outcome
    before = len(read(broker, topic))
    assert 1 <= before < 6
    assert job.done == before
    rest = job_of(console, console.send_form(f"/dead-letters/dlq.{topic}/redrive"))
    wait(rest, lambda: rest.state is not JobState.RUNNING)
    assert sorted(b"k%d" % at for at in range(6)) == sorted(each.key for each in read(broker, topic))


def test_a_redrive_sends_exactly_what_was_shown(
    console: Visitor, broker: InProcessBroker, admin: Admin, topic: str
) -> None:
    address = f"/dead-letters/dlq.{topic}/redrive"
    die(broker, topic, 3, "timeout")
    form = console.form(address)
    die(broker, topic, 2, "late")
    job = job_of(console, console.post(address, form))
    wait(job, lambda: job.state is not JobState.RUNNING)
    assert (JobState.DONE, f"redriven 3 to {topic}") == (job.state, job.outcome)
    assert 3 == len(read(broker, topic))
    shown = dict(line.split(",") for line in form["plan"][0].split())
    assert shown == {name: str(end) for name, end in console.console.audit.newest()[0].details["before"].items()}
    late = console.form(address)
    assert ["2"] == late["letters"]
    for broken in ({"plan": "x"}, {"plan": ""}, {"plan": "0,1,2"}):
        assert 422 == console.post(address, {**late, **broken}).status_code
    # Durations count back from the preview, not from the moment at which the form is sent.
    later_ms = int(late["now_ms"][0]) + 7_200_000
    job = job_of(console, console.post(address, {**late, "until": "1h", "now_ms": str(later_ms)}))
    wait(job, lambda: job.state is not JobState.RUNNING)
    assert f"redriven 2 to {topic}" == job.outcome
    # Another topic of this name has other letters.
    admin.delete_topics([f"dlq.{topic}"])
    admin.create_topics([NewTopic(f"dlq.{topic}", 2, 1)], wait_for_metadata=True)
    die(broker, topic, 5, "other")
    job = job_of(console, console.post(address, form))
    wait(job, lambda: job.state is not JobState.RUNNING)
    assert (JobState.FAILED, True) == (job.state, "deleted and created again" in job.outcome)


def test_rules_that_cannot_be(console: Visitor, broker: InProcessBroker, topic: str) -> None:
    dead = f"dlq.{topic}"
    for query, words in (
        ("rate=fast", "must be numbers"),
        ("rate=0", "rate must be from"),
        ("rate=nan", "rate must be from"),
        ("target=topic", "name the topic"),
        (f"to={dead}", "cannot redrive"),
    ):
        page = console.get(f"/dead-letters/{dead}/redrive?{query}")
        assert (422, True) == (page.status_code, words in page.text), query
    assert 404 == console.get("/dead-letters/dlq.no-such-topic/redrive").status_code


def test_purge_deletes_exactly_what_was_shown(
    console: Visitor, broker: InProcessBroker, admin: Admin, topic: str
) -> None:
    dead = f"dlq.{topic}"
    die(broker, topic, 4, "timeout")
    assert "Nothing to delete" in console.get(f"/dead-letters/{dead}/purge").text
    page = console.get(f"/dead-letters/{dead}/purge?what=all").text
    assert "4 of them were not redriven" in page
    plan = page.split('name="plan" value="')[1].split('"')[0]
    die(broker, topic, 2, "late")
    again = console.post(f"/dead-letters/{dead}/purge", {"plan": plan, "what": "all", "confirm": "x"})
    check_asks_again(again, "x")
    assert "6 of them were not redriven" in again.text, "what the form deletes now is shown now"
    assert 303 == console.post(f"/dead-letters/{dead}/purge", {"plan": plan, "confirm": dead}).status_code
    assert [b"late", b"late"] == [dict(each.headers)["__dlq.errors.message"] for each in read(broker, dead)]
    refused = console.post(f"/dead-letters/{topic}/purge", {"plan": "0,0", "confirm": topic})
    assert (True, True) == (400 <= refused.status_code < 500, "is not a dead-letter topic" in refused.text)
    assert 422 == console.get(f"/dead-letters/{dead}/purge?what=until&until=whenever").status_code


def test_a_read_only_console_changes_nothing(
    visit: Callable[..., Visitor], broker: InProcessBroker, topic: str
) -> None:
    dead = f"dlq.{topic}"
    die(broker, topic, 2, "timeout")
    reader = visit(broker.bootstrap, read_only=True)
    assert f'href="/dead-letters/{dead}/redrive' not in reader.get(f"/dead-letters/{dead}").text
    assert 403 == reader.post(f"/dead-letters/{dead}/purge", {"plan": "0,1", "confirm": dead}).status_code
    copy = {"topic": topic, "value": "x", "key": ""}
    assert 403 == reader.post(f"/dead-letters/{dead}/0/0/edit", copy).status_code
    job = job_of(reader, reader.post(f"/dead-letters/{dead}/redrive", {"plan": "0,2", "topic_id": "any"}))
    wait(job, lambda: job.state is not JobState.RUNNING)
    assert (JobState.FAILED, True) == (job.state, "read-only" in job.outcome)
    assert ([], 2) == (read(broker, topic), len(read(broker, dead)))
