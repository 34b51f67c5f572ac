"""What a newcomer may write, run by `test_install.py`: a topic filled, a stream to another one, the rows counted.

Run by the Python of an environment into which nothing but `ottla[spark]` was installed. It starts the broker that was
installed with it, and prints one line of JSON.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from ottla.spark.launch.session import build_session

ROWS = 1000


def main(folder: Path) -> None:
    """Starts a broker, and Spark; uses both."""
    serving = [str(Path(sys.executable).with_name("ottla")), "serve", "--listen", "127.0.0.1:0", "--data"]
    broker = subprocess.Popen([*serving, str(folder / "data")], stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        bootstrap = next(line for line in broker.stdout if "ready" in line).split()[-1]
        print(json.dumps(through_spark(bootstrap, folder)), flush=True)
    finally:
        broker.terminate()
        broker.wait(30)


def through_spark(bootstrap: str, folder: Path) -> dict[str, object]:
    """Rows into `first`, from there into `second` as a stream, and from there back."""
    spark = build_session("fresh", master="local[2]", settings={"spark.driver.memory": "1g"})
    address = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS key", "CAST(id * 2 AS STRING) AS value")
    rows.write.format("ottla").options(**address, topic="first").mode("append").save()
    stream = spark.readStream.format("ottla").options(**address, subscribe="first", startingOffsets="earliest").load()
    query = (
        stream.select("key", "value")
        .writeStream.format("ottla")
        .options(**address, topic="second", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    arrived = spark.read.format("ottla").options(**address, subscribe="second").load()
    [(count, total)] = arrived.selectExpr("COUNT(*)", "SUM(CAST(CAST(value AS STRING) AS BIGINT))").collect()
    java = spark._jvm.System.getProperty("java.home")
    spark.stop()
    return {"count": count, "total": total, "java": java, "java_home": os.environ["JAVA_HOME"]}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
