"""Types and promises of the kernel that finds schema ids."""

from typing_extensions import Buffer

from ottla.records.header_edit import HeaderNames

def schema_frames(
    payload: Buffer, count: int, header: HeaderNames, of_keys: bool, frames_max: int
) -> dict[bytes | None, int]:
    """The different schema ids of the records' keys or values, each with the index of its first record. An id has its
    magic byte, so it is 5 bytes, or 17 for a GUID. Ends when `frames_max` are found, whatever follows.

    None stands for a key or value that is null. Fewer than 5 bytes are the beginning of one without an id. If a
    record has the header of the first name, the id is read from it, as serializers do. `payload` is the batch's
    decompressed records, `count` their number. Damage raises `CorruptBatchError` that names the record's index.
    """

def records_with_frames(
    payload: Buffer, count: int, header: HeaderNames, of_keys: bool, frames: frozenset[bytes], records_max: int
) -> list[tuple[int, bytes]]:
    """Index and id of the first `records_max` records whose id is one of `frames`, as `schema_frames` returned it."""
