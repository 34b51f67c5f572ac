"""kill -9 while topics are made, deleted and reconfigured: afterwards each is as before or as wished, never half."""

import os
import threading
from base64 import urlsafe_b64decode
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.crash.load import LOST, RETRY_SECONDS, ask
from tests.waiting import wait_until
from tests.wire.world import TIMEOUT

KILLS = int(os.environ.get("OTTLA_CRASH_KILLS", "5"))
SEED = int(os.environ.get("OTTLA_CRASH_SEED", "1"))
NAMES = [f"topic-{number}" for number in range(12)]
PARTITIONS = 3


class Wisher:
    """Makes, changes and deletes topics, one after the other, and remembers for each what it may be now.

    `ids` has the id that a topic was said to have; None for one that is said not to exist. What was under way when the
    broker ended is in `doubtful`: it may be as before or as wished.
    """

    def __init__(self, address: str, random: Random) -> None:
        self._address = address
        self._random = random
        self.ids: dict[str, UUID | None] = dict.fromkeys(NAMES)
        self.retentions: dict[str, int] = {}
        self.doubtful: set[str] = set()
        self.done = 0

    def has_done(self, count: int) -> bool:
        """Whether so many wishes were fulfilled."""
        return self.done >= count

    def run(self, is_over: threading.Event) -> None:
        while not is_over.is_set():
            name = self._random.choice(NAMES)
            self.doubtful.add(name)
            try:
                self._change(name)
            except LOST:
                # The one that was under way stays in doubt until the broker is asked.
                is_over.wait(RETRY_SECONDS)
                continue
            self.doubtful.discard(name)
            self.done += 1

    def _change(self, name: str) -> None:
        known = self.ids[name]
        if known is None:
            self._create(name)
        elif self._random.random() < 0.5:
            self._delete(name)
        else:
            self._configure(name)

    def _create(self, name: str) -> None:
        configs = [{"name": "retention.ms", "value": "1000"}]
        wish = {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1, "configs": configs}
        (made,) = ask(self._address, ApiKey.CREATE_TOPICS, {"topics": [wish], "timeout": TIMEOUT}).topics
        if made.error_code is ErrorCode.none:
            self.ids[name], self.retentions[name] = made.topic_id, 1000
        else:
            # It was made before a kill, without our being told.
            assert ErrorCode.topic_already_exists is made.error_code, made.error_message
            self.ids[name] = topics_by_name(self._address)[name].topic_id
            self.retentions[name] = retention_of(self._address, name)

    def _delete(self, name: str) -> None:
        wish = {"topics": [{"name": name, "topic_id": None}], "timeout": TIMEOUT}
        (gone,) = ask(self._address, ApiKey.DELETE_TOPICS, wish).responses
        assert gone.error_code in (ErrorCode.none, ErrorCode.unknown_topic_or_partition), gone.error_message
        self.ids[name] = None

    def _configure(self, name: str) -> None:
        wanted = self.retentions[name] + 1
        config = {"name": "retention.ms", "config_operation": 0, "value": str(wanted)}
        resources = [{"resource_type": 2, "resource_name": name, "configs": [config]}]
        (changed,) = ask(self._address, ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": resources}).responses
        if changed.error_code is ErrorCode.none:
            self.retentions[name] = wanted
        else:
            # It was deleted before a kill, without our being told.
            assert ErrorCode.unknown_topic_or_partition is changed.error_code, changed.error_message
            self.ids[name] = None


def topics_by_name(address: str) -> dict[str, Any]:
    return {topic.name: topic for topic in ask(address, ApiKey.METADATA, {"topics": None}).topics}


def retention_of(address: str, name: str) -> int:
    keys = ["retention.ms"]
    resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": keys}]
    (found,) = ask(address, ApiKey.DESCRIBE_CONFIGS, {"resources": resources}).results
    return int(found.configs[0].value)


def check(broker: BrokerProcess, wisher: Wisher) -> None:
    """After a start: topics that are not in doubt are as they were said to be, the others whole or not at all."""
    found = topics_by_name(broker.address)
    for name in NAMES:
        if name not in wisher.doubtful:
            assert wisher.ids[name] == (found[name].topic_id if name in found else None), name
            if name in found:
                assert wisher.retentions[name] == retention_of(broker.address, name), name
        elif name in found and wisher.ids[name] == found[name].topic_id:
            assert retention_of(broker.address, name) - wisher.retentions[name] in (0, 1), name
    for name, topic in found.items():
        assert PARTITIONS == len(topic.partitions), name
        assert {ErrorCode.none} == {part.error_code for part in topic.partitions}, name
    expected = {f"{name}-{index}" for name in found for index in range(PARTITIONS)}
    folders = {path.name for path in broker.data.iterdir() if path.is_dir()}
    # A folder that is being deleted may still be there for a moment, under a name that says so.
    assert expected == {name for name in folders if not name.endswith("-delete")}
    for name, topic in found.items():
        for index in range(PARTITIONS):
            assert topic.topic_id == folder_id(broker.data / f"{name}-{index}")


def folder_id(folder: Path) -> UUID:
    text = (folder / "partition.metadata").read_text().partition("topic_id: ")[2].splitlines()[0]
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def test_topics_are_whole_after_every_kill(tmp_path: Path) -> None:
    random = Random(SEED)
    with BrokerProcess(tmp_path) as broker:
        wisher = Wisher(broker.address, random)
        for _ in range(2 * KILLS):
            is_over = threading.Event()
            thread = threading.Thread(target=wisher.run, args=(is_over,))
            thread.start()
            enough = wisher.done + random.randint(1, 25)
            try:
                wait_until(partial(wisher.has_done, enough), "some wishes are fulfilled")
                broker.kill()
            finally:
                is_over.set()
                thread.join()
            broker.start()
            check(broker, wisher)
            for name in wisher.doubtful:
                found = topics_by_name(broker.address).get(name)
                wisher.ids[name] = found.topic_id if found is not None else None
                if found is not None:
                    wisher.retentions[name] = retention_of(broker.address, name)
            wisher.doubtful.clear()
        print(f"{wisher.done} wishes were fulfilled")
        before = topics_by_name(broker.address)
        broker.stop()
        broker.start()
        assert before == topics_by_name(broker.address)
        check(broker, wisher)
        assert [] == broker.alarms()
        wait_until(lambda: not list(broker.data.glob("*-delete")), "folders of deleted topics are removed")
