"""The progress of groups of all types, and resets of their offsets: `offset_resets.py` decides, `reset.py` does."""
