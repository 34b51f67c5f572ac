"""The producers: from a record or a table to its queue, and from there to its leader."""
