"""Requests about the records of partitions."""
