"""Decisions as text in the metadata of committed offsets, in parts that are small enough.

A single part is readable JSON. Several parts are the same text, compressed. Every part has a checksum of the whole
text, so that parts of different decisions are never combined.
"""

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

from ottla.model.errors import CorruptError
from ottla.spark.sink.decision import CommitDecision, FirstOffset, TaskTransaction
from ottla.spark.sink.names import task_id, token_of

PART_CHARACTERS_MAX: Final = 4_000
"""Brokers keep up to 4,096 (`offset.metadata.max.bytes`)."""
_VERSION: Final = 1
_TEXT_BYTES_MAX: Final = 64 * 1024 * 1024


class DecisionTextError(CorruptError):
    """The metadata of a group is not a complete decision of this sink."""


def write_decision(decision: CommitDecision) -> list[str]:
    """The parts of the text; at least one."""
    whole = json.dumps(_fields(decision), separators=(",", ":"))
    if len(whole) <= PART_CHARACTERS_MAX:
        return [whole]
    packed = zlib.compress(whole.encode(), 6)
    text, mark = base64.b64encode(packed).decode(), f"{zlib.crc32(packed):08x}"
    size = PART_CHARACTERS_MAX - 64
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [f"{mark} {number} {len(pieces)} {piece}" for number, piece in enumerate(pieces)]


def part_count(first: str) -> int:
    """The number of parts, from the first one."""
    return 1 if first.startswith("{") else _part(first, 0)[1]


def read_decision(parts: Sequence[str], sink_id: str) -> CommitDecision:
    """Decodes a decision; raises `DecisionTextError` if parts are missing or do not match."""
    try:
        return _decision(json.loads(_joined(parts)), sink_id)
    except (ValueError, TypeError, KeyError, IndexError, zlib.error) as error:
        raise DecisionTextError(
            f"group ottla-spark-{sink_id} does not hold a valid decision of the sink ({error}); its offsets were"
            " changed by another program. Use another sinkId, or another checkpoint for the stream"
        ) from error


def _joined(parts: Sequence[str]) -> str:
    if parts[0].startswith("{"):
        return parts[0]
    found = [_part(part, number) for number, part in enumerate(parts)]
    if len({(mark, count) for mark, count, _ in found}) != 1 or found[0][1] != len(parts):
        raise ValueError("parts of different decisions")
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


def _fields(decision: CommitDecision) -> dict[str, Any]:
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


def _decision(found: dict[str, Any], sink_id: str) -> CommitDecision:
    if found["v"] != _VERSION:
        raise ValueError(f"version {found['v']} is not supported, only version {_VERSION}")
    topics = found["topics"]
    return CommitDecision(
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
