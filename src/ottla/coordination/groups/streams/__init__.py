"""Streams groups (KIP-1071): the broker knows the topology of a Kafka Streams application and assigns its tasks."""
