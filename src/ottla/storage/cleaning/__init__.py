"""Compaction: which segments to clean, the two passes, and the swap of the result. Start with `cleaner.py`."""
