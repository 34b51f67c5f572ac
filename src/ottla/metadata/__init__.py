"""What the cluster agreed on: brokers, topics, partitions, configs.

`image.py` is the immutable picture that every broker holds; `store.py` the port to where it is kept; `records.py` says
what lies under which key, and `changes.py` makes images of it. `sqlite_store.py` is one machine's store, with its file
in `sqlite_file.py` and the holders of its leases in `lease_owner.py`. The definitions of Kafka's configs are
in `topic_configs.py` and `broker_configs.py`.
"""
