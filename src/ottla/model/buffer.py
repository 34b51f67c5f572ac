"""The types of bytes in memory."""

Buffer = bytes | bytearray | memoryview
