"""Client programs in Python."""
