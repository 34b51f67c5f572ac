"""Reading topics in Spark: options, offsets, spans of tasks, and the readers that Spark calls."""
