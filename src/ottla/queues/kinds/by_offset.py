"""Instructions about one parked record, by its offset: due now (`ottla.release`), or not delivered (`ottla.cancel`).

An instruction is a record of its own in the partition of the parked record. It is not parked, so it must not have a
value: a client's record that has such a header by chance is refused and not lost. An instruction about a record that is
not parked, or not any more, has no effect. Pure.
"""

from collections.abc import Mapping

from ottla.model.queue_names import CANCEL, RELEASE
from ottla.queues.gate import OFFSET_MAX, Instruction, quoted


def instruction(release: bytes | None, cancel: bytes | None) -> Instruction | None:
    """The instruction of a record with these headers; None if it is not one, or not a valid one."""
    header, value = (RELEASE, release) if release is not None else (CANCEL, cancel)
    return Instruction(header, int(value)) if value is not None and _is_offset(value) else None


def instruction_fault(release: bytes | None, cancel: bytes | None, others: Mapping[str, bytes | None]) -> str | None:
    """What is wrong with the headers of a record if it is an instruction; `others` are those that it must not have."""
    name, value = (RELEASE, release) if release is not None else (CANCEL, cancel)
    if value is None:
        return None
    contradicting = [other for other, found in others.items() if found is not None]
    if release is not None and cancel is not None:
        contradicting.append(CANCEL)
    if contradicting:
        return f"headers {name} and {contradicting[0]} contradict each other; send {name} with a record of its own"
    return None if _is_offset(value) else f"header {name}: {quoted(value)} is not an offset"


def _is_offset(value: bytes) -> bool:
    return value.isdigit() and len(value) <= 19 and int(value) <= OFFSET_MAX
