"""Runs the queries of a project, and reads what they leave between runs.

`queries.py` plans the streaming queries, `query_names.py` names them, `runner.py` starts, watches and stops them,
`query_report.py` says how far each is, `failure_reasons.py` why one failed. `run_files.py` allows one run at a time;
`checkpoints.py` and `parquet_files.py` read what Spark wrote, without Spark; `project_status.py` compares it with the
cluster's offsets. `spark_declarative.py` runs projects of Spark's own declarative pipelines.
"""
