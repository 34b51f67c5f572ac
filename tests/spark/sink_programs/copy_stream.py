"""A driver: copies a topic to another through Spark, by way of a shuffle if told so, until all there was is copied.

    python -m tests.spark.sink_programs.copy_stream '{"bootstrap": …, "source": …, "output": …, "folder": …}'

Its exit code is 0 if the query ended well; its process group is in the file `driver` of the folder while it runs.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from ottla.spark.launch.session import build_session
from tests.spark.killing_source import KillingSource


def main(given: dict[str, Any]) -> None:
    """See the module's docstring."""
    folder = Path(given["folder"])
    (folder / "driver").write_text(str(os.getpgid(0)))
    settings = {
        "spark.driver.memory": "640m",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Executors of a cluster start elsewhere, and must find the tests' data source.
        "spark.executorEnv.PYTHONPATH": os.getcwd(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        **given.get("settings", {}),
    }
    spark = build_session("copy", master=given.get("master", "local[2]"), settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(KillingSource)
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("subscribe", given["source"])
        .option("startingOffsets", "earliest")
        .options(**given.get("reading", {}))
        .load()
        .selectExpr("key", "value")
    )
    if given.get("shuffles"):
        rows = rows.repartition(4, "key")
    query = (
        rows.writeStream.format("ottla_killing")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("topic", given["output"])
        .option("killFolder", str(folder))
        .options(**given.get("writing", {}))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
