"""Types and docstrings of the compiled hash."""

from typing_extensions import Buffer

def murmur2(key: Buffer) -> int:
    """The murmur2 hash of Java's clients, 32 bits, unsigned."""

def partition_for_key(key: Buffer, partitions: int) -> int:
    """The partition of a key in a topic with that many partitions."""
