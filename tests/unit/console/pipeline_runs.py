"""What runs of the pipeline `shop` leave in its folder, as the console reads it."""

import json
from pathlib import Path


def run_of(folder: Path, query: str, batches: int, offset: int) -> None:
    """The checkpoint of a query that read up to an offset."""
    at = folder / ".ottla" / "shop" / query
    for name in ("offsets", "commits"):
        (at / name).mkdir(parents=True, exist_ok=True)
        for batch in range(batches):
            read = json.dumps({"orders": {"0": offset * (batch + 1) // batches}})
            (at / name / str(batch)).write_text(f"v1\n{{}}\n{read}" if name == "offsets" else "v1\n{}")
    (at / "metadata").write_text('{"id":"abc"}')


def progress(folder: Path, **states: str) -> None:
    """What a run says of its queries, whose names may have `__` for a hyphen."""
    queries = [
        {"name": name.replace("__", "-"), "to": "x", "state": state, "batch": 2, "rows": 7, "rows_per_second": 3.5}
        for name, state in states.items()
    ]
    at = folder / ".ottla" / "shop"
    at.mkdir(parents=True, exist_ok=True)
    (at / "progress.json").write_text(json.dumps({"at": 1_700_000_000.5, "queries": queries}))
