"""Types and promises of the compiled hash."""

from typing_extensions import Buffer

def murmur2(key: Buffer) -> int:
    """The 32 bits of Java clients' murmur2, unsigned."""

def partition_for_key(key: Buffer, partitions: int) -> int:
    """The partition of a key, for a topic of that many."""
