"""Pipelines declared in files: a folder with `pipeline.toml` and SQL or Python steps, run on Spark, exactly once.

`declaration/` reads a project without Spark and reports all its problems. `dataframes/` builds its views and sinks as
DataFrames. `running/` runs its queries, keeps what a run needs between runs, and reports its status.
"""

from ottla.spark.pipelines.dataframes.row_function import rejecting
from ottla.spark.pipelines.running.parquet_files import committed_files

__all__ = ["committed_files", "rejecting"]
