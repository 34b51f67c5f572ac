"""Decisions as text: what a group's committed offsets keep beside themselves, in parts that are small enough.

One part is JSON that a person can read. More than one is the same text, compressed. Every part says which text it is a
part of, so that parts of two decisions are never taken for one.
"""

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

from ottla.model.errors import CorruptError
from ottla.spark.sink.decision import Decision, FirstOffset, TaskTransaction
from ottla.spark.sink.names import task_id, token_of

PART_CHARACTERS_MAX: Final = 4_000
"""Brokers keep up to 4,096 (`offset.metadata.max.bytes`)."""
_VERSION: Final = 1
_TEXT_BYTES_MAX: Final = 64 * 1024 * 1024


class DecisionTextError(CorruptError):
    """What a group keeps is not a decision of this sink, or not a whole one."""


def write_decision(decision: Decision) -> list[str]:
    """The parts of its text; at least one."""
    whole = json.dumps(_fields(decision), separators=(",", ":"))
    if len(whole) <= PART_CHARACTERS_MAX:
        return [whole]
    packed = zlib.compress(whole.encode(), 6)
    text, mark = base64.b64encode(packed).decode(), f"{zlib.crc32(packed):08x}"
    size = PART_CHARACTERS_MAX - 64
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [f"{mark} {number} {len(pieces)} {piece}" for number, piece in enumerate(pieces)]


def part_count(first: str) -> int:
    """How many parts a text has, by its first one."""
    return 1 if first.startswith("{") else _part(first, 0)[1]


def read_decision(parts: Sequence[str], sink_id: str) -> Decision:
    """The decision again; raises `DecisionTextError` unless these are all parts of one."""
    try:
        return _decision(json.loads(_joined(parts)), sink_id)
    except (ValueError, TypeError, KeyError, IndexError, zlib.error) as error:
        raise DecisionTextError(
            f"what group ottla-spark-{sink_id} keeps is no decision of the sink ({error}): nobody else may change its"
            " offsets; give the sink another sinkId, or the stream another checkpoint"
        ) from error


def _joined(parts: Sequence[str]) -> str:
    if parts[0].startswith("{"):
        return parts[0]
    found = [_part(part, number) for number, part in enumerate(parts)]
    if len({(mark, count) for mark, count, _ in found}) != 1 or found[0][1] != len(parts):
        raise ValueError("its parts are of different decisions")
    packed = base64.b64decode("".join(piece for _, _, piece in found), validate=True)
    if f"{zlib.crc32(packed):08x}" != found[0][0]:
        raise ValueError("a part was changed")
    return zlib.decompressobj().decompress(packed, _TEXT_BYTES_MAX).decode()


def _part(text: str, number: int) -> tuple[str, int, str]:
    try:
        mark, at, count, piece = text.split(" ", 3)
        if int(at) == number < int(count):
            return mark, int(count), piece
    except ValueError:
        pass
    raise DecisionTextError(f"{text[:40]!r} is not part {number} of a sink's decision")


def _fields(decision: Decision) -> dict[str, Any]:
    topics = sorted({each.first_offsets[0].topic for each in decision.transactions})
    numbers = {topic: number for number, topic in enumerate(topics)}
    return {
        "v": _VERSION,
        "batch": decision.batch_id,
        "owner": decision.owner,
        "done": decision.is_done,
        "topics": topics,
        "tasks": [
            [
                each.task,
                token_of(each.transactional_id),
                each.producer_id,
                each.epoch,
                each.row_count,
                each.byte_count,
                numbers[each.first_offsets[0].topic],
                each.first_offsets[0].partition,
                each.first_offsets[0].offset,
            ]
            for each in decision.transactions
        ],
    }


def _decision(found: dict[str, Any], sink_id: str) -> Decision:
    if found["v"] != _VERSION:
        raise ValueError(f"it is written in version {found['v']}, and this is version {_VERSION}")
    topics = found["topics"]
    return Decision(
        owner=str(found["owner"]),
        batch_id=int(found["batch"]),
        is_done=bool(found["done"]),
        transactions=tuple(
            TaskTransaction(
                task=int(task),
                transactional_id=task_id(sink_id, str(token)),
                producer_id=int(producer_id),
                epoch=int(epoch),
                row_count=int(row_count),
                byte_count=int(byte_count),
                first_offsets=(FirstOffset(str(topics[topic]), int(partition), int(offset)),),
            )
            for task, token, producer_id, epoch, row_count, byte_count, topic, partition, offset in found["tasks"]
        ),
    )
