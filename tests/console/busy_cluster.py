"""A cluster with something on every page: topics, groups that lag, odd names, schemas, users, dead letters, a queue."""

import json
import random
import threading
import time
from contextlib import suppress

from ottla import Admin, ConfigResource, Consumer, NewTopic, Producer, ResourceType
from ottla.model.errors import OttlaError

ODD_GROUPS = ("größe-überwachung-日本語-🦦", "<script>alert(1)</script>", "g" * 200, "plain group")
LONG_TOPIC = "a-topic-with-a-name-of-two-hundred-characters-" + "x" * 154
TOPICS = ("orders", "payments", "clicks.raw", "inventory_updates", LONG_TOPIC)


class BusyCluster:
    """Fills a cluster once, then writes and reads in the background until it is closed."""

    def __init__(self, bootstrap: str, replication_factor: int = 1) -> None:
        self._bootstrap = bootstrap
        self._replication_factor = replication_factor
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._random = random.Random(7)

    def fill(self) -> None:
        """Creates topics, records, groups and dead letters."""
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            names = [*TOPICS, "dlq.orders", *(f"service-{each:03d}.events" for each in range(60))]
            new = [NewTopic(name, 6 if name == "orders" else 2, self._replication_factor) for name in names]
            admin.create_topics(new, wait_for_metadata=True)
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            for number in range(3000):
                producer.send("orders", key=f"order-{number}".encode(), value=self._order(number))
            for number in range(400):
                producer.send("clicks.raw", value=bytes(self._random.randrange(256) for _ in range(40)))
                producer.send(LONG_TOPIC, value=f"text {number} with ünïcode <b>and markup</b>".encode())
            for number in range(37):
                headers = [("__connect.errors.topic", b"orders"), ("__connect.errors.exception.message", b"no price")]
                producer.send("dlq.orders", value=self._order(number), headers=headers)
        for group in ODD_GROUPS:
            self._read("clicks.raw", group, 400)
        for group, count in (("billing", 2000), ("fraud-check", 1800), ("warehouse-export", 500)):
            self._read("orders", group, count)

    def leave_throttle(self) -> None:
        """As a reassignment does whose tool was killed."""
        rates = {f"{each}.replication.throttled.rate": "20971520" for each in ("leader", "follower")}
        replicas = {f"{each}.replication.throttled.replicas": "0:0,1:1" for each in ("leader", "follower")}
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            admin.alter_configs(
                [
                    ConfigResource(ResourceType.BROKER, "0", rates),
                    ConfigResource(ResourceType.TOPIC, "payments", replicas),
                ]
            )

    def start(self) -> None:
        """Writes and reads in the background."""
        for work in (self._write, lambda: self._read("orders", "billing", None)):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Stops writing and reading."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _order(self, number: int) -> bytes:
        return json.dumps(
            {
                "id": number,
                "customer": f"c-{number % 97}",
                "price": round(self._random.random() * 100, 2),
                "item": "naïve",
            }
        ).encode()

    def _write(self) -> None:
        with suppress(OttlaError), Producer(bootstrap_servers=self._bootstrap) as producer:
            number = 3000
            while not self._stop.is_set():
                for _ in range(self._random.randrange(20, 60)):
                    producer.send("orders", key=f"order-{number}".encode(), value=self._order(number))
                    number += 1
                producer.send("payments", value=self._order(number))
                time.sleep(0.1)  # a load that the machine can bear

    def _read(self, topic: str, group: str, count: int | None) -> None:
        """Reads and commits so many records, or all until it is stopped. The rest is the group's lag."""
        with (
            suppress(OttlaError),
            Consumer(
                topic, group_id=group, bootstrap_servers=self._bootstrap, auto_offset_reset="earliest"
            ) as consumer,
        ):
            left = count
            while not self._stop.is_set() and (left is None or left > 0):
                found = consumer.poll(timeout_ms=500, max_records=left)
                if left is not None:
                    left -= sum(len(each) for each in found.values())
            consumer.commit()
