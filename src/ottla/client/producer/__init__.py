"""The producers: from a program's records to the partitions of a cluster.

`Producer` and `AsyncProducer` are thin. A record takes the `SendPath` into the queue of its partition (`batching`);
from there the `Sender` sends batches to the brokers. `ProducerCore` puts these parts together. Tables (`tables`) take
the same path as whole batches; transactions are in `transactions`.
"""
