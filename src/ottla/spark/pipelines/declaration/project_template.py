"""A new project: files that run as they are, with comments on what can be changed."""

from pathlib import Path
from typing import Final

from ottla.model.errors import MisuseError
from ottla.spark.pipelines.declaration.project import PROJECT_FILE, STEPS_FOLDER

_PIPELINE: Final = """\
# A pipeline: sources are topics as views, steps compute views from views, sinks write them.
# Check it with `ottla pipeline validate`, run it with `ottla pipeline run`.
name = "{name}"
bootstrap = "localhost:9092"
mode = "continuous"                  # or "once": process all present records, then exit
trigger = "1s"                       # how often a micro-batch begins

[sources.orders]                     # the topic's records as the view `orders`
topic = "orders"
format = "json"                      # or avro, registry, string, bytes
schema = "id STRING, customer STRING, amount DOUBLE, at TIMESTAMP"
starting_offsets = "earliest"        # for the first run; later runs continue where the last one stopped
watermark = "at 1 minute"            # how late an order may arrive

[steps.clean]                        # steps/clean.sql
expect = {{ "the amount is positive" = "amount > 0" }}

[sinks.totals]                       # the view `totals`, exactly once, into a topic
from = "totals"
topic = "order-totals"
key = "customer"

[sinks.archive]                      # the view `clean` into Parquet files
from = "clean"
parquet = "archive"
partition_by = ["day"]

[dead_letters]                       # rows that cannot be decoded or fail an expectation
topic = "orders-dead"
"""
_CLEAN: Final = """\
-- `SELECT *` also keeps _origin, the original record, for rows that fail an expectation.
SELECT *, to_date(at) AS day
FROM orders
"""
_TOTALS: Final = """\
SELECT
    window.start AS minute,
    customer,
    count(*) AS orders,
    sum(amount) AS amount
FROM clean
GROUP BY window(at, '1 minute'), customer
"""


def make_project(folder: Path, name: str) -> list[Path]:
    """Writes a project into a folder and returns its files. Raises `MisuseError` if one of them exists."""
    files = {
        folder / PROJECT_FILE: _PIPELINE.format(name=name),
        folder / STEPS_FOLDER / "clean.sql": _CLEAN,
        folder / STEPS_FOLDER / "totals.sql": _TOTALS,
    }
    for path in files:
        if path.exists():
            raise MisuseError(f"{path} exists already; nothing was written")
    (folder / STEPS_FOLDER).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)
