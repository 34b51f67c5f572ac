"""The metadata store of several machines, in ZooKeeper. `commit_log.py` describes the znodes; start there."""
