"""The end of the broker at each step of a retry: the next one returns each record, and writes each dead letter, once.

A group hands records back and rejects one. At every step the broker's files are copied (`watched_disk.py`), and a new
broker opens each copy.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.model.dead_letters import read_dead_letter
from ottla.model.ids import TopicPartition
from ottla.queues.progress_records import Action, Done
from tests.crash.doomed_broker import DoomedBroker
from tests.crash.queue_steps import noted, plan_of
from tests.crash.watched_disk import Point, records_in
from tests.topic_contents import values_in
from tests.waiting import wait_until

TOPIC: Final = "orders"
RETRY, BACK, DEAD = f"{TOPIC}.g.retry", f"{TOPIC}.g.redelivery", f"dlq.{TOPIC}"
CONFIGS: Final = {
    "ottla.retry.enable": "true",
    # All are handed back before the first returns, on a busy machine too.
    "ottla.retry.backoff.ms": "5000",
    "ottla.retry.backoff.jitter": "0",
    "ottla.retry.max.attempts": "1",
}
VALUES: Final = [b"returns 1", b"returns 2", b"rejected"]


POINTS: Final = {
    "handed back": Point(sees=records_in(RETRY), nth=3),
    "the return is about to be planned": Point(sees=plan_of(RETRY, Action.DELIVER), is_after=False),
    "the return is planned": Point(sees=plan_of(RETRY, Action.DELIVER)),
    "about to return": Point(sees=records_in(BACK), is_after=False),
    "returned": Point(sees=records_in(BACK)),
    "the dead letter is about to be planned": Point(sees=plan_of(RETRY, Action.DEAD), is_after=False),
    "the dead letter is planned": Point(sees=plan_of(RETRY, Action.DEAD)),
    "the dead letter is about to be written": Point(sees=records_in(DEAD), is_after=False),
    "the dead letter is written": Point(sees=records_in(DEAD)),
    "it is noted that all is done": Point(sees=noted(RETRY, Done)),
}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a broker would have left at each point of one life."""
    folder = tmp_path_factory.mktemp("life")
    with DoomedBroker(folder / "data") as broker:
        options: dict[str, Any] = {"bootstrap_servers": broker.address}
        with Admin(**options) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1, topic_configs=CONFIGS)])
        with Producer(**options) as producer:
            for value in VALUES:
                producer.send(TOPIC, value).get(30)
        with Consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, **options) as consumer:
            # Not as a member of the group: the next broker would wait for it.
            consumer.assign([TopicPartition(TOPIC, 0)])
            records = [next(consumer) for _ in VALUES]
            with Producer(**options) as producer:
                producer.partitions_for(RETRY)
            broker.watch(POINTS)
            for record in records[:2]:
                consumer.retry(record, "later")
            with Producer(**options) as producer:
                headers = [("ottla.retry.reject", b"never"), ("ottla.retry.origin", f"{TOPIC}/0/2".encode())]
                producer.send(RETRY, records[2].value, headers=headers, partition=0).get(30)
            wait_until(lambda: 2 == values_in(broker.address, BACK).total(), "they returned")
            wait_until(lambda: 1 == values_in(broker.address, DEAD).total(), "the dead letter is there")
            wait_until(lambda: broker.has_reached("it is noted that all is done"), "it is noted")
        return {name: broker.left_at(name) for name in POINTS}


@pytest.mark.parametrize("point", POINTS)
def test_the_next_broker_returns_each_record_once(left: dict[str, Path], point: str) -> None:
    with DoomedBroker(left[point]) as broker:
        returning, dead = Counter(VALUES[:2]), Counter(VALUES[2:])
        wait_until(lambda: returning <= values_in(broker.address, BACK), "all returned")
        wait_until(lambda: dead <= values_in(broker.address, DEAD), "the dead letter is there")
        # Handed back once more: it is the second time, so that it becomes a dead letter, behind all that was owed.
        options: dict[str, Any] = {"bootstrap_servers": broker.address, "auto_offset_reset": "earliest"}
        with Consumer(group_id="g", enable_auto_commit=False, **options) as consumer:
            consumer.assign([TopicPartition(BACK, 0)])
            again = next(consumer)
            assert b"1" == dict(again.headers)["ottla.retry.attempt"]
            consumer.retry(again, "twice")
        dead[again.value] += 1
        wait_until(lambda: dead <= values_in(broker.address, DEAD), "it is dead after the second time")
        assert (returning, dead) == (values_in(broker.address, BACK), values_in(broker.address, DEAD))
        with Consumer(**options) as consumer:
            consumer.assign([TopicPartition(DEAD, 0)])
            stories = [read_dead_letter(next(consumer).headers) for _ in range(dead.total())]
        offset = VALUES.index(again.value)
        assert {f"{TOPIC}/0/{offset}": ("twice", 2)}.items() <= {
            str(story.origin): (story.reason, story.attempts) for story in stories if story is not None
        }.items()
