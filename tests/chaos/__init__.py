"""Clusters of real processes that are broken on purpose, under the load of foreign clients, and what must hold then.

`history.py` is what clients saw, `checker.py` judges it, `network.py` has places that can be cut off from each other,
`arena.py` puts brokers, ZooKeeper and clients there, `faults.py` breaks them one by one. Needs root and `iproute2`
for the network, Java for ZooKeeper, and Kafka's jars (tests/compat/prepare) for Java's clients.
"""
