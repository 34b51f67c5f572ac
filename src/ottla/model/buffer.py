"""Bytes in memory, owned by whichever object."""

Buffer = bytes | bytearray | memoryview
