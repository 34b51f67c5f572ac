"""The parallel consumers: many records of a partition at a time, order kept by key."""
