"""A program: Ottla's share consumers as a load, with everything they are told in a history.

    python -m tests.chaos.share_load BOOTSTRAP HISTORY NAME PARTITIONS ROLES

Roles, with commas: `sharer` (a member of the share group `sharers`, of `plain`; every third one accepts implicitly) and
`watcher` (asks for the group's start offsets). It configures the group first. At the first line of its input it prints
`quiet`; when the input ends, members go on until the group is done with all records, and everything ends.
`JavaLoad.java` has a role `sharer`, too.
"""

import faulthandler
import random
import signal
import sys
import threading
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any, Final

from ottla import Admin, ShareConsumer
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource
from ottla.client.share.values import AcknowledgeType, ShareRecords
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from tests.chaos.history import HistoryWriter
from tests.chaos.share_violations import DELIVERIES_MAX, GROUP, TOPIC

LOCK_MS: Final = 2_000
GROUP_CONFIGS: Final = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": str(DELIVERIES_MAX),
    "share.record.lock.duration.ms": str(LOCK_MS),
}
DONE_SECONDS: Final = 90.0
WATCH_SECONDS: Final = 0.5
BUFFERED_POLLS: Final = 4
"""A poll may return what was fetched for one of the polls before it."""
KINDS: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
WEIGHTS: Final = (80, 15, 5)


class Load:
    """One run of the program."""

    def __init__(self, bootstrap: str, history: HistoryWriter, name: str, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.history = history
        self.name = name
        self.partitions = [TopicPartition(TOPIC, index) for index in range(partitions)]
        self.is_over = threading.Event()
        self.is_done = threading.Event()

    def tell(self, role: str, what: str, **more: Any) -> None:
        """Writes an event of one role."""
        self.history.write(f"{self.name}-{role}", what, **more)

    def configure(self) -> None:
        """Sets the group's configs."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.alter_configs([ConfigResource(ResourceType.GROUP, GROUP, GROUP_CONFIGS)])

    # Roles

    def sharer(self, number: int) -> None:
        """A member; after what it cannot get over, a new one."""
        chance = random.Random(f"{self.name}-{number}")
        life = 0
        while not self.is_done.is_set():
            life += 1
            role = f"sharer-{number}.{life}"
            is_implicit = number % 3 == 0
            try:
                with ShareConsumer(
                    TOPIC,
                    group_id=GROUP,
                    bootstrap_servers=self.bootstrap,
                    share_acknowledgement_mode="implicit" if is_implicit else "explicit",
                    share_acquire_mode="record_limit",
                    max_poll_records=20,
                    request_timeout_ms=5_000,
                    metadata_max_age_ms=5_000,
                ) as consumer:
                    self._share(consumer, role, chance, is_implicit=is_implicit)
            except OttlaError as error:
                self.tell(role, "trouble", error=repr(error))
                time.sleep(0.2)  # a broker that was killed is back soon

    def _share(self, consumer: ShareConsumer, role: str, chance: random.Random, *, is_implicit: bool) -> None:
        begun: deque[float] = deque([time.monotonic()], BUFFERED_POLLS)
        while not self.is_done.is_set():
            since = begun[0]
            begun.append(time.monotonic())
            found = consumer.poll(timeout_ms=500)
            if not found:
                continue
            lines = [[str(at), each.offset, each.value.decode()] for at, some in found.items() for each in some]
            counts = [each.delivery_count for some in found.values() for each in some]
            self.tell(role, "acquired", records=lines, counts=counts, since=since, group=GROUP)
            given = self._acknowledge(consumer, found, chance, is_implicit=is_implicit)
            for (at, how), offsets in given.items():
                self.tell(role, "acknowledging", at=str(at), how=how, offsets=offsets)
            results = consumer.commit(timeout_ms=10_000)
            for (at, how), offsets in given.items():
                if results.get(at, OttlaError()) is None:
                    self.tell(role, "acknowledged", at=str(at), how=how, offsets=offsets)

    def _acknowledge(
        self, consumer: ShareConsumer, found: ShareRecords, chance: random.Random, *, is_implicit: bool
    ) -> dict[tuple[TopicPartition, str], list[int]]:
        """Decides about each record; when the load ends, all are accepted."""
        given: dict[tuple[TopicPartition, str], list[int]] = defaultdict(list)
        for at, some in found.items():
            for record in some:
                how = AcknowledgeType.ACCEPT
                if not is_implicit:
                    how = how if self.is_over.is_set() else chance.choices(KINDS, WEIGHTS)[0]
                    consumer.acknowledge(record, how)
                given[at, how.name.lower()].append(record.offset)
        return given

    def watcher(self, number: int) -> None:
        """Asks for the group's start offsets, and whether it is done."""
        deadline = None
        while not self.is_done.is_set():
            is_over = self.is_over.is_set()
            if deadline is None and is_over:
                deadline = time.monotonic() + DONE_SECONDS
            since = time.monotonic()
            told = {}
            try:
                with Admin(bootstrap_servers=self.bootstrap, request_timeout_ms=5_000) as admin:
                    told = admin.list_share_group_offsets(GROUP)
            except OttlaError as error:
                self.tell("watcher", "complained", error=repr(error))
            for at, each in told.items():
                self.tell("watcher", "start", at=str(at), offset=each.start_offset, since=since)
            if is_over and all(at in told and told[at].lag == 0 for at in self.partitions):
                self.is_done.set()
            elif deadline is not None and time.monotonic() > deadline:
                self.tell("watcher", "undone", error=", ".join(f"{at}: {each}" for at, each in told.items()))
                self.is_done.set()
            self.is_done.wait(WATCH_SECONDS)

    def run(self, roles: list[str]) -> None:
        """Until the input ends and the group is done."""
        threads = [
            threading.Thread(target=getattr(self, role), args=(number,), daemon=True)
            for number, role in enumerate(roles, 1)
        ]
        for each in threads:
            each.start()
        sys.stdin.readline()
        print("quiet", flush=True)
        sys.stdin.read()
        self.is_over.set()
        for each in threads:
            each.join()


def main() -> None:
    """See the module's docstring."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    bootstrap, path, name, partitions, roles = sys.argv[1:]
    with Path(path).open("w") as file:
        load = Load(bootstrap, HistoryWriter(file), name, int(partitions))
        load.configure()
        print("ready", flush=True)
        load.run(roles.split(","))


if __name__ == "__main__":
    main()
