"""A member of a group in a process of its own: `python -m tests.compat.client_suite.member_program '{"topics": …}'`.

Tells what happens to it as JSON lines: what it was assigned and lost, where the records are that it read, and its
generation (or member epoch) after a poll that changed nothing about its membership. It commits what it read before it
reads on. Ends when its standard input does; a line on it stops it polling, the next lets it go on.
"""

import json
import select
import sys
from collections.abc import Collection
from typing import Any

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.errors import CommitFailedError
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.model.ids import TopicPartition


def tell(event: str, **more: Any) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps({"event": event, **more}) + "\n")
    sys.stdout.flush()


class Telling(ConsumerRebalanceListener):
    """Says what it hears. `generation` is the last one that was told; None if something was heard since."""

    generation: int | None = None

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """See the class."""
        self.generation = None
        tell("revoked", partitions=[each.partition for each in revoked])

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """See the class."""
        self.generation = None
        tell("assigned", partitions=[each.partition for each in assigned])

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """See the class."""
        self.generation = None
        tell("lost", partitions=[each.partition for each in lost])


def main() -> None:
    """Reads until standard input ends."""
    asked = json.loads(sys.argv[1])
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **asked["options"]}
    with Consumer(**options) as consumer:
        listener = Telling()
        consumer.subscribe(asked["topics"], listener=listener)
        while True:
            if select.select([sys.stdin], [], [], 0)[0]:
                command = sys.stdin.readline().strip()
                if not command:
                    break
                sys.stdin.readline()
            generation = consumer.group_metadata().generation_id
            for partition, records in consumer.poll(200).items():
                tell("read", partition=partition.partition, first=records[0].offset, end=records[-1].offset + 1)
            # A poll calls the listener for the generation that there was when it began.
            if listener.generation != generation == consumer.group_metadata().generation_id:
                listener.generation = generation
                tell("generation", number=generation)
            try:
                consumer.commit()
            except CommitFailedError:
                tell("commit-refused")


if __name__ == "__main__":
    main()
