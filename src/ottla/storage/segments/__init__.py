"""A log's segment files and their indexes: reading, writing, searching. Start with `segment.py`."""
