"""What Spark finds by itself: a module whose name begins with `pyspark_`, and in it the data source `ottla`.

Spark imports every such module when it first looks for a format, and gives up on all of them if one fails. So this one
imports nothing of weight until it is asked for its `DefaultSource`. The data source itself: `ottla.spark.data_source`.
"""

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """`DefaultSource`, on first use."""
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.spark.data_source import OttlaDataSource

    return OttlaDataSource
