"""Groups and their committed offsets: one partition of `__consumer_offsets`."""
