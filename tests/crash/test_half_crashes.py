"""The end of the broker at each step of a half message: the next one delivers what is committed once, nothing else.

One half message is asked about and committed, one rolled back, one never decided. At every step the broker's files are
copied (`watched_disk.py`), and a new broker opens each copy.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.producer.blocking_producer import Producer
from ottla.queues.progress_records import Action, Done
from tests.crash.doomed_broker import DoomedBroker
from tests.crash.queue_steps import noted, plan_of
from tests.crash.watched_disk import Point, records_in
from tests.topic_contents import values_in
from tests.waiting import wait_until

ORDERS, SILENT = "orders", "silent"
"""The producer of the second one never decides."""
CHECKS: Final = {"ottla.half.enable": "true", "ottla.half.check.interval.ms": "300"}


HALVES: Final = records_in(f"{ORDERS}.half")
POINTS: Final = {
    "prepared": Point(sees=HALVES, nth=2),
    "a question is about to be planned": Point(sees=plan_of(f"{ORDERS}.half", Action.ASK), is_after=False),
    "a question is planned": Point(sees=plan_of(f"{ORDERS}.half", Action.ASK)),
    "about to ask": Point(sees=records_in(f"{ORDERS}.half-checks"), is_after=False),
    "asked": Point(sees=records_in(f"{ORDERS}.half-checks")),
    "about to be committed": Point(sees=HALVES, nth=3, is_after=False),
    "committed": Point(sees=HALVES, nth=3),
    "the delivery is planned": Point(sees=plan_of(f"{ORDERS}.half", Action.DELIVER)),
    "about to be delivered": Point(sees=records_in(ORDERS), is_after=False),
    "delivered": Point(sees=records_in(ORDERS)),
    "rolled back": Point(sees=HALVES, nth=4),
    "the delivery is noted": Point(sees=noted(f"{ORDERS}.half", Done)),
    "the dead letter is planned": Point(sees=plan_of(f"{SILENT}.half", Action.DEAD)),
    "the dead letter is about to be written": Point(sees=records_in(f"dlq.{SILENT}"), is_after=False),
    "the dead letter is written": Point(sees=records_in(f"dlq.{SILENT}")),
}


def send(producer: Producer, topic: str, id: str, state: str, *more: tuple[str, bytes]) -> None:
    """A half message, or a decision; the value of a half message is its id."""
    headers = [("ottla.half.id", id.encode()), ("ottla.half.state", state.encode()), *more]
    producer.send(f"{topic}.half", id.encode(), headers=headers, partition=0).get(30)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a broker would have left at each point of one life."""
    folder = tmp_path_factory.mktemp("life")
    with DoomedBroker(folder / "data") as broker:
        options: dict[str, Any] = {"bootstrap_servers": broker.address}
        with Admin(**options) as admin:
            admin.create_topics(
                [
                    NewTopic(ORDERS, 1, 1, topic_configs={**CHECKS, "ottla.half.check.max": "100000"}),
                    NewTopic(SILENT, 1, 1, topic_configs={**CHECKS, "ottla.half.check.max": "1"}),
                ]
            )
        with Producer(**options) as producer:
            send(producer, SILENT, "dead", "prepare", ("ottla.half.check-after-ms", b"8000"))
            broker.watch(POINTS)
            send(producer, ORDERS, "good", "prepare", ("ottla.half.check-after-ms", b"3000"))
            send(producer, ORDERS, "bad", "prepare")
            wait_until(lambda: b"good" in values_in(broker.address, f"{ORDERS}.half-checks"), "it is asked")
            send(producer, ORDERS, "good", "commit")
            send(producer, ORDERS, "bad", "rollback")
            wait_until(lambda: b"good" in values_in(broker.address, ORDERS), "it is delivered")
            wait_until(lambda: b"dead" in values_in(broker.address, f"dlq.{SILENT}"), "the dead letter is there")
            wait_until(lambda: broker.has_reached("the delivery is noted"), "it is noted")
        return {name: broker.left_at(name) for name in POINTS}


@pytest.mark.parametrize("point", POINTS)
def test_the_next_broker_delivers_what_is_committed_once(left: dict[str, Path], point: str) -> None:
    with DoomedBroker(left[point]) as broker:
        with Producer(bootstrap_servers=broker.address) as producer:
            # As a producer does that does not know whether its decisions arrived.
            send(producer, ORDERS, "bad", "rollback")
            send(producer, ORDERS, "good", "commit")
            wait_until(lambda: b"good" in values_in(broker.address, ORDERS), "it is delivered")
            wait_until(lambda: b"dead" in values_in(broker.address, f"dlq.{SILENT}"), "the dead letter is there")
            # Behind all that was owed.
            send(producer, ORDERS, "last", "prepare")
            send(producer, ORDERS, "last", "commit")
            send(producer, SILENT, "last", "prepare", ("ottla.half.check-after-ms", b"0"))
        wait_until(lambda: b"last" in values_in(broker.address, ORDERS), "the last one is delivered")
        wait_until(lambda: b"last" in values_in(broker.address, f"dlq.{SILENT}"), "the last dead letter is there")
        assert Counter([b"good", b"last"]) == values_in(broker.address, ORDERS)
        assert Counter([b"dead", b"last"]) == values_in(broker.address, f"dlq.{SILENT}")
        assert (Counter(), Counter()) == (values_in(broker.address, SILENT), values_in(broker.address, f"dlq.{ORDERS}"))
        # Each was asked about once, as ottla.half.check.max says.
        assert Counter([b"dead", b"last"]) == values_in(broker.address, f"{SILENT}.half-checks")
