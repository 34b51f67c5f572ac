"""Storage: a partition is a folder of segments in Kafka's file formats, safe against crashes, read without copying.

Front door: `log_store.LogStore` opens the data dirs and returns a `log.Log` for each partition. `log.py` has append,
truncate and flush. The rooms:
- `segments/`: one `.log` file with its indexes, and the list of a log's segments;
- `recovery/`: opening a folder after a clean shutdown, a crash or damage;
- `cleaning/`: compaction;
- `producers/`: producer sequences and open transactions, and their snapshots;
- `data_dirs/`: a data dir's lock, identity, checkpoint files and file names.
All file access goes through the `Disk` port of `ottla.env`.
"""
