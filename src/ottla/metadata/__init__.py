"""Cluster metadata: brokers, topics, partitions and configs.

`image.py` is the immutable picture of the cluster that every broker holds, `store.py` the port to the metadata store.
`records.py` defines the keys and values in the store; `changes.py` turns them into images. Three rooms:
- `sqlite/`: the store of one machine;
- `zookeeper/`: the store of several machines;
- `configs/`: the definitions of Kafka's topic and broker configs.
"""
