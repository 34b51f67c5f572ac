"""A batch's records section, decompressed: the one place where the codec's errors learn which batch they are about."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla.model.errors import CorruptBatchError, DecompressionLimitError, InvalidRequestError
from ottla.records.batch import Batch
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, decompress

INLINE_BYTES_MAX: Final = 128 * 1024
"""What a batch may decompress to on the event loop, where many are read one after the other."""

InBackground = Callable[..., Awaitable[Any]]
"""Runs a function with its arguments in a thread, as `Disk.in_background` does."""


def read_payload(batch: Batch, limit: int = DECOMPRESSED_BYTES_MAX) -> memoryview:
    """The records' bytes: the batch's own if they are plain. An emptied batch has none, whatever its codec says.

    Raises what `decompress` raises, with the batch's base offset in the message.
    """
    if batch.unpacked is not None:
        return batch.unpacked
    payload = batch.payload
    if not payload:
        return payload
    try:
        return decompress(batch.codec, payload, limit)
    except (CorruptBatchError, InvalidRequestError) as error:
        raise type(error)(f"batch with base offset {batch.base_offset}: {error}") from error


async def unpack(batch: Batch, in_background: InBackground) -> int:
    """Decompresses a batch before it is looked into: at once if that is little, in the background if not. Returns the
    size of its records.

    Raises what `read_payload` raises.
    """
    if batch.codec:
        try:
            batch.unpacked = read_payload(batch, INLINE_BYTES_MAX)
        except DecompressionLimitError:
            batch.unpacked = await in_background(read_payload, batch)
    return batch.size_bytes if batch.unpacked is None else len(batch.unpacked)
