"""What the files of a project say, read and checked without Spark.

`project.py` has the data types. `project_file.py` reads `pipeline.toml` and `toml_lines.py` finds the line of a key;
`step_files.py` and `sql_relations.py` find the views that each step reads, `view_order.py` their order. `loading.py`
puts it together and reports all `problems.py` at once. `project_template.py` writes a new project.
"""
