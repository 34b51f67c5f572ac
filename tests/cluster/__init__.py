"""Ottla on a real ZooKeeper: ensembles of one or three servers, whole or failing.

`zookeeper.py` runs the servers, from the jars that PySpark brings; it needs Java.
"""
