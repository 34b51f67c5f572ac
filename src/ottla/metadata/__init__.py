"""What the cluster agreed on: brokers, topics, partitions, configs.

`image.py` is the immutable picture that every broker holds; `store.py` the port to where it is kept; `records.py` says
what lies under which key, and `changes.py` makes images of it. Two stores are behind the port:
- `sqlite_store.py`, one machine's, with its file in `sqlite_file.py` and the holders of its leases in `lease_owner.py`;
- `zookeeper_store.py`, many machines'. `zookeeper_log.py` has its layout and is the place to start.
The definitions of Kafka's configs are in `topic_configs.py` and `broker_configs.py`.
"""
