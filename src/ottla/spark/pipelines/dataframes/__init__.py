"""The views and sinks of a project as Spark DataFrames.

`sources.py` reads topics and files, `record_rows.py` turns records into rows, `view_builder.py` runs the steps,
`rejections.py` separates rejected rows from good ones, `sinks.py` writes. `row_function.py` is for Python steps that
may fail on single rows. `added_columns.py` names the columns that a pipeline adds.
"""
