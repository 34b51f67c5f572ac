"""What Spark wrote down about a query, read from its checkpoint without Spark: batches begun, batches done, offsets.

A checkpoint has `metadata` (the query's id), `offsets/<batch>` (what a batch reads, written before it runs) and
`commits/<batch>` (written when it is done). In an offsets file the first line is a version, the second Spark's own
settings of the batch, and each further one the offsets of one source.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_OWN_KEY: Final = "@"
"""Keys that begin so stand beside the topics of our source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    """How far a query is."""

    query_id: str | None
    batch: int | None
    """The last batch that is done."""
    is_batch_open: bool
    """Whether a further one was begun, and will be run again."""
    offsets: Mapping[str, Mapping[int, int]]
    """By topic and partition, up to where what is done has read, exclusive."""
    watermark_ms: int | None
    finished_ms: int | None
    """When the last batch was done."""


def read_checkpoint(folder: Path) -> QueryState | None:
    """How far the query with this checkpoint is; None if it never began."""
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


def _query_id(folder: Path) -> str | None:
    try:
        found = json.loads((folder / "metadata").read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return str(found["id"]) if isinstance(found, dict) and "id" in found else None


def _last(folder: Path) -> int | None:
    """The largest number among the names; Spark puts checksums and unfinished files beside them."""
    if not folder.is_dir():
        return None
    return max((int(path.name) for path in folder.iterdir() if re.fullmatch(r"\d+", path.name)), default=None)


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
                    # A topic that is read twice in one query is as far as the slower of the two.
                    place = found.setdefault(topic, {})
                    place[int(partition)] = min(offset, place.get(int(partition), offset))
    return found, watermark


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    # A source in Python has its offsets as a text of JSON inside of Spark's.
    if isinstance(value, str):
        return _object(value)
    return value if isinstance(value, dict) else {}
