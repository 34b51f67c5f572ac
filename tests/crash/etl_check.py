"""Whether records went from one topic to another exactly once: pure checks over what a read_committed reader found.

`read_committed` reads with confluent-kafka, which is not the code under test. What the workers write is told in
`etl.py`.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

READ_SECONDS: Final = 30.0


class Moved(NamedTuple):
    """One record of the output: from which offset of its input partition it was made, by which transaction, and the
    input's value."""

    offset: int
    transaction: str
    value: bytes


def parse_moved(partition: int, content: bytes) -> Moved:
    """A record of the output; it must be in the partition that it came from."""
    origin, _, value = content.partition(b" ")
    source, offset, transaction = origin.decode().split("/")
    assert partition == int(source), f"a record of partition {source} is in partition {partition}"
    return Moved(int(offset), transaction, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is there in the end, by partition; of the audit topic the records as they are."""

    inputs: Sequence[Sequence[bytes]]
    outputs: Sequence[Sequence[Moved]]
    audit: Sequence[bytes]


def problems_of(found: Found) -> list[str]:
    """What is wrong: nothing may be lost, be there twice, be out of order, or lack the rest of its transaction."""
    problems: list[str] = []
    moved: dict[str, Counter[int]] = {}
    for partition, (before, after) in enumerate(zip(found.inputs, found.outputs, strict=True)):
        problems += [f"partition {partition}: {problem}" for problem in _of_partition(before, after)]
        for record in after:
            moved.setdefault(record.transaction, Counter())[partition] += 1
    audited: dict[str, Counter[int]] = {}
    for content in found.audit:
        entry = json.loads(content)
        if entry["name"] in audited:
            problems.append(f"transaction {entry['name']} is in the audit twice")
        audited[entry["name"]] = Counter({int(key): count for key, count in entry["counts"].items()})
    for name in sorted({*moved, *audited}):
        done, said = moved.get(name, Counter()), audited.get(name, Counter())
        if done != said:
            problems.append(f"transaction {name} moved {done}, and says {said}")
    return problems


def _of_partition(before: Sequence[bytes], after: Sequence[Moved]) -> list[str]:
    offsets = [record.offset for record in after]
    if offsets == list(range(len(before))):
        wrong = [at for at, (value, record) in enumerate(zip(before, after, strict=True)) if value != record.value]
        return [f"another value at {wrong[:10]}"] if wrong else []
    counts = Counter(offsets)
    lost = [offset for offset in range(len(before)) if not counts[offset]]
    twice = [offset for offset, count in sorted(counts.items()) if count > 1]
    strange = [offset for offset in sorted(counts) if offset >= len(before)]
    named = {"lost": lost, "there more than once": twice, "from nowhere": strange}
    problems = [f"{len(some)} {name}: {some[:10]}" for name, some in named.items() if some]
    return problems or [f"out of order: {[at for at, offset in enumerate(offsets) if at != offset][:10]}"]


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[list[bytes]]:
    """The values of each partition, as far as it reaches now."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    waiting = set(range(partitions))
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    try:
        while waiting:
            record: Any = consumer.poll(READ_SECONDS)
            if record is None:
                raise TimeoutError(f"{topic} has no end in {sorted(waiting)}")
            if record.error() is None:
                found[record.partition()].append(record.value())
            elif record.error().code() == KafkaError._PARTITION_EOF:
                waiting.discard(record.partition())
            else:
                raise KafkaException(record.error())
    finally:
        consumer.close()
    return found
