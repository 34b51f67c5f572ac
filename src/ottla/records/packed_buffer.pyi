"""Types and promises of the kernels' memory."""

from typing import final

@final
class PackedBuffer:
    """Memory that a kernel filled, reached through the buffer protocol and given back with the last view of it."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def uninitialized(size: int) -> PackedBuffer:
    """A buffer of undefined content, for callers that overwrite all of it; large ones are reused, and so cheap."""
