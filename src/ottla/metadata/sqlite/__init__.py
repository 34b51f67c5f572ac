"""The metadata store of one machine: a SQLite file that its broker processes share. Start with `sqlite_store.py`."""
