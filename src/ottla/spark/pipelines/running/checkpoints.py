"""Reads the checkpoint of a query without Spark: the last batch, whether another has begun, offsets.

A checkpoint has `metadata` (the id of the query), `offsets/<batch>` (what a batch reads, written before it runs) and
`commits/<batch>` (written when it is done). The first line of an offsets file is a version, the second has Spark's
settings of the batch, and each further line has the offsets of one source.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_OWN_KEY: Final = "@"
"""Prefix of keys that are not topics in the offsets of our source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    """The progress of a query."""

    query_id: str | None
    batch: int | None
    """The last completed batch."""
    is_batch_open: bool
    """Whether another batch has begun; the next run repeats it."""
    offsets: Mapping[str, Mapping[int, int]]
    """End offset of the completed batches (exclusive), by topic and partition."""
    watermark_ms: int | None
    finished_ms: int | None
    """When the last batch was completed."""


def read_checkpoint(folder: Path) -> QueryState | None:
    """The progress of the query with this checkpoint; None if it never began."""
    query_id = _query_id(folder)
    if query_id is None:
        return None
    done = _last(folder / "commits")
    begun = _last(folder / "offsets")
    offsets: dict[str, dict[int, int]] = {}
    watermark = finished = None
    if done is not None:
        finished = int((folder / "commits" / str(done)).stat().st_mtime * 1000)
        offsets, watermark = _read_offsets(folder / "offsets" / str(done))
    return QueryState(
        query_id=query_id,
        batch=done,
        is_batch_open=begun is not None and (done is None or begun > done),
        offsets=offsets,
        watermark_ms=watermark,
        finished_ms=finished,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch, as its files in the checkpoint tell of it."""

    number: int
    began_ms: int
    """When its offsets were written, which happens before it runs."""
    finished_ms: int | None
    """None for the batch that has begun but is not completed."""
    offsets_read: int | None
    """Offsets between the end of the batch before and its own, over all topics; None if that one is not kept."""


def read_batches(folder: Path, count: int) -> list[Batch]:
    """The newest batches of a checkpoint, newest first. Spark keeps the files of about a hundred."""
    numbers = sorted(_numbers(folder / "offsets"), reverse=True)
    found = []
    for number, before in zip(numbers[:count], [*numbers[1 : count + 1], None], strict=False):
        began = _modified_ms(folder / "offsets" / str(number))
        if began is None:
            # Spark removed it meanwhile.
            continue
        read = None if before is None else _advance(folder / "offsets", before, number)
        finished = _modified_ms(folder / "commits" / str(number))
        found.append(Batch(number=number, began_ms=began, finished_ms=finished, offsets_read=read))
    return found


def _advance(folder: Path, before: int, after: int) -> int | None:
    earlier, later = _read_offsets(folder / str(before))[0], _read_offsets(folder / str(after))[0]
    if not earlier or not later:
        return None
    return sum(
        max(end - earlier.get(topic, {}).get(partition, end), 0)
        for topic, partitions in later.items()
        for partition, end in partitions.items()
    )


def _modified_ms(path: Path) -> int | None:
    try:
        return int(path.stat().st_mtime * 1000)
    except FileNotFoundError:
        return None


def _query_id(folder: Path) -> str | None:
    try:
        found = json.loads((folder / "metadata").read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return str(found["id"]) if isinstance(found, dict) and "id" in found else None


def _last(folder: Path) -> int | None:
    """The largest number among the file names."""
    return max(_numbers(folder), default=None)


def _numbers(folder: Path) -> list[int]:
    """The numbers among the file names; Spark also writes checksums and unfinished files there."""
    if not folder.is_dir():
        return []
    return [int(path.name) for path in folder.iterdir() if re.fullmatch(r"\d+", path.name)]


def _read_offsets(path: Path) -> tuple[dict[str, dict[int, int]], int | None]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}, None
    settings = _object(lines[1]) if len(lines) > 1 else {}
    watermark = settings.get("batchWatermarkMs") or None
    found: dict[str, dict[int, int]] = {}
    for line in lines[2:]:
        for topic, partitions in _object(line).items():
            if topic.startswith(_OWN_KEY) or not isinstance(partitions, dict):
                continue
            for partition, offset in partitions.items():
                if partition.isdigit() and isinstance(offset, int):
                    # If one query reads a topic twice, the slower reader counts.
                    place = found.setdefault(topic, {})
                    place[int(partition)] = min(offset, place.get(int(partition), offset))
    return found, watermark


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    # A Python source stores its offsets as a JSON string inside of the JSON of Spark.
    if isinstance(value, str):
        return _object(value)
    return value if isinstance(value, dict) else {}
