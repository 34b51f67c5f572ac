"""A batch's records section, decompressed: the one place where the codec's errors learn which batch they are about."""

from ottla.model.errors import CorruptBatchError, InvalidRequestError
from ottla.records.batch import Batch
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, decompress


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
