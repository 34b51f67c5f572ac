"""What is accepted on topics whose records expire: a TTL header must be a number. Pure.

Records are not rewritten, so that the gate of such a topic only looks at them. Batches that the broker itself delivers
are not checked: their records were accepted once, and have nowhere else to go.
"""

from typing import Final

from ottla.model.errors import CorruptBatchError, InvalidRecordError
from ottla.model.ids import QUEUE_PRODUCER_BIT
from ottla.model.queue_names import TTL_MS
from ottla.queues.gate import number_fault, read_admitted, refusal
from ottla.records.batch import Batch
from ottla.records.header_edit import MALFORMED, HeaderNames, find_headers, find_numbers
from ottla.storage.batch_validation import is_malformed

_TTL: Final = HeaderNames(TTL_MS)


def check_ttls(payload: memoryview, count: int) -> None:
    """Raises `InvalidRecordError` if a record has a TTL that is not a number; see `ottla.queues.gate`."""
    (ttls,) = find_numbers(payload, count, _TTL)
    if MALFORMED not in ttls:
        return
    faults = ((index, number_fault(TTL_MS, value or b"")) for index, (value,) in find_headers(payload, count, _TTL))
    raise refusal([(index, fault) for index, fault in faults if fault is not None], count)


def admit_with_ttl(batch: Batch) -> Batch:
    """The same batch, if the TTLs of its records are numbers."""
    if is_malformed(batch) or (batch.producer_id & QUEUE_PRODUCER_BIT and batch.has_producer_id):
        return batch
    batch.check()
    try:
        check_ttls(read_admitted(batch), batch.count)
    except CorruptBatchError as error:
        # The checksum was right, so that sending the batch again would not help.
        raise InvalidRecordError(str(error)) from error
    return batch
