"""Reading topics: options, offsets, spans, and the readers that Spark calls."""
