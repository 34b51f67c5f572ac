"""Pipelines declared in files: a folder with `pipeline.toml` and SQL or Python steps, run on Spark, exactly once.

What a project says, without Spark: `project.py` (the words), `project_file.py` (reading `pipeline.toml`, with
`toml_lines.py` for where a word stands), `step_files.py` and `sql_names.py` (what each step reads), `graph.py` (their
order), `loading.py` (all of it, with every problem found), `starter.py` (a new project).

With Spark: `sources.py` and `parsing.py` make views of topics and files, `views.py` runs the steps over them,
`rejections.py` parts what is wrong from what is right, `sinks.py` writes, `queries.py` puts it all together,
`runner.py` starts and ends the queries, `row_function.py` is for steps whose Python may fail on single rows.

What is kept between runs: `run_files.py` (one run at a time, its progress), `checkpoints.py` (what Spark wrote down,
read without it), `parquet_files.py` (which files of a Parquet sink count); `standing.py` holds it against the cluster.
`declarative.py` runs a project of Spark's own declarative pipelines.
"""

from ottla.spark.pipelines.parquet_files import committed_files
from ottla.spark.pipelines.row_function import rejecting

__all__ = ["committed_files", "rejecting"]
