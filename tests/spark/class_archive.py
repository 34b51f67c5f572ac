"""Spark's classes in one file that JVMs map into memory: at each start they would read and verify ten thousand of them.

Made once for each Java and each installed Spark, by a session that uses what tests use. A JVM whose class path or Java
differs starts without it.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MAKING_SECONDS: Final = 600


def class_archive() -> Path:
    """The file, made if it is not there yet."""
    import pyspark

    from ottla.spark.launch.java import java_home

    home = java_home()
    assert home is not None, "Spark needs Java"
    parts = (home / "bin" / "java", Path(pyspark.__file__).parent / "jars")
    # Jars that were installed again have new times, and a JVM then takes no archive of them.
    key = "\n".join(f"{part.resolve()} {part.stat().st_mtime_ns}" for part in parts)
    archive = ROOT / "build" / "spark" / f"classes-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (archive.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker makes it, the others wait
        if not archive.exists():
            for old in archive.parent.glob("*.jsa"):
                old.unlink()
            fresh = archive.with_suffix(".fresh")
            subprocess.run(
                [sys.executable, "-m", __name__, str(fresh)],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                check=True,
                timeout=MAKING_SECONDS,
            )
            fresh.rename(archive)
    return archive


def make_archive(target: Path) -> None:
    """Starts Spark, uses it, and waits until its JVM has ended and written what it had loaded."""
    from ottla.spark.launch.session import build_session

    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={target} -Xlog:cds=off -Xlog:cds+dynamic=off",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = build_session("class archive", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    java = spark.sparkContext._gateway.proc
    with TemporaryDirectory() as folder:
        rows = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id % 3 AS STRING) AS value")
        rows.write.parquet(f"{folder}/rows")
        rows.join(spark.read.parquet(f"{folder}/rows"), "key").orderBy("key").collect()
        stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows").groupBy("value").count()
        writer = stream.writeStream.outputMode("complete").foreachBatch(lambda batch, _: batch.collect())
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
        spark.stop()
    java.stdin.close()
    java.wait(MAKING_SECONDS)


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]))
