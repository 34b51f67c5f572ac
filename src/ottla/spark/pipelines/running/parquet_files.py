"""The committed files of a Parquet sink, for readers that do not use Spark's log of them.

Spark's file sink writes the files of a micro-batch into the folder and then commits the batch by listing them in
`_spark_metadata`. A crash in between leaves uncommitted files, and the batch is written again: readers that list the
folder (pandas, pyarrow, DuckDB) would read its rows twice, or fail on an incomplete file.
"""

import json
import logging
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from ottla.model.errors import MisuseError

_LOG: Final = logging.getLogger("ottla.spark.pipelines")
_METADATA: Final = "_spark_metadata"
_ASIDE: Final = "_uncommitted"
_SUFFIX: Final = ".uncommitted"
_PART: Final = re.compile(r"part-\d+-.+\.parquet")
"""File names of Spark's writers."""


def committed_files(folder: Path | str) -> list[Path]:
    """The Parquet files of all committed batches, in order. Does not need Spark.

    Raises `MisuseError` if the folder was not written by Spark's file sink.
    """
    folder = Path(folder)
    if not (folder / _METADATA).is_dir():
        raise MisuseError(f"{folder} has no {_METADATA}: it was not written by Spark's file sink")
    return _committed(folder)


def set_aside_uncommitted(folder: Path, since_seconds: float) -> list[Path]:
    """Moves the files of uncommitted batches into `_uncommitted`, logs each, and returns the new paths.

    No query may be writing to the folder. Only files that Spark wrote after `since_seconds` (Unix time) are moved.
    """
    if not (folder / _METADATA).is_dir():
        return []
    # By name, which is unique: the log has the paths at the time of writing, and the folder may have been moved.
    committed = {path.name for path in _committed(folder)}
    moved = []
    for path in sorted(folder.rglob("*.parquet")):
        place = path.relative_to(folder)
        is_hidden = any(part.startswith(("_", ".")) for part in place.parts)
        if is_hidden or _PART.fullmatch(path.name) is None or path.name in committed:
            continue
        if path.stat().st_mtime < since_seconds:
            continue
        # Readers skip folders that begin with an underscore, or look for names that end in .parquet.
        target = folder / _ASIDE / place.with_name(place.name + _SUFFIX)
        content = _content(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        _LOG.warning("moved uncommitted file %s (%s) to %s", path, content, target)
        moved.append(target)
    return moved


def _committed(folder: Path) -> list[Path]:
    batches = {int(path.name.partition(".")[0]): path for path in (folder / _METADATA).glob("[0-9]*")}
    compacted = max((number for number, path in batches.items() if path.suffix == ".compact"), default=-1)
    found = []
    for number, path in sorted(batches.items()):
        if number >= compacted:
            entries = (json.loads(line) for line in path.read_text().splitlines()[1:])
            found += [Path(unquote(urlparse(entry["path"]).path)) for entry in entries]
    return found


def _content(path: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return f"{pq.read_metadata(path).num_rows} rows"
    except (pa.ArrowInvalid, OSError):
        return "incomplete"
