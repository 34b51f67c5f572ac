"""The log: partitions as folders of segments, in Kafka's own file layouts, crash safe and read without copying.

Front door: `log_store.LogStore` opens data dirs and hands out `log.Log`, one per partition. A log is made of
`segment.Segment`s, each a `.log` file with its indexes. What must survive is explained where it is decided: `log.py`
(append, truncate, flush), `recovery.py` (what a crash leaves), `cleaner.py` (what compaction swaps).
All file access goes through the `Disk` port of `ottla.env`.
"""
