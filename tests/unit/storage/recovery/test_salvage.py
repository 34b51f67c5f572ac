"""What is left of a damaged log: every intact batch, and a line for each place that was stepped over."""

from collections.abc import Callable
from struct import pack_into

import pytest

from ottla.model.ids import Offset
from ottla.records.layout import BASE_OFFSET_AT, LENGTH_AT, MAGIC_AT
from ottla.sim.disk import SimDisk
from ottla.storage.log import Log
from ottla.storage.recovery.salvage import Intact, Skipped, read_intact
from tests.unit.storage.rig import CONFIG, append, batch, fill, new_log

Damage = Callable[[bytearray], None]


def flip_record(content: bytearray) -> None:
    content[-3] ^= 0x10


def shorten(content: bytearray) -> None:
    pack_into(">i", content, LENGTH_AT, 7)


def lengthen(content: bytearray) -> None:
    pack_into(">i", content, LENGTH_AT, 200)


def stretch_beyond_the_file(content: bytearray) -> None:
    pack_into(">i", content, LENGTH_AT, 2**30)


def move_ahead(content: bytearray) -> None:
    pack_into(">q", content, BASE_OFFSET_AT, 2**40)


def move_back(content: bytearray) -> None:
    pack_into(">q", content, BASE_OFFSET_AT, 0)


def change_magic(content: bytearray) -> None:
    content[MAGIC_AT] = 1


def blank(content: bytearray) -> None:
    content[:] = bytes(len(content))


DAMAGES: dict[str, Damage] = {
    each.__name__: each
    for each in (
        flip_record,
        shorten,
        lengthen,
        stretch_beyond_the_file,
        move_ahead,
        move_back,
        change_magic,
        blank,
    )
}


def damaged(disk: SimDisk, log: Log, offset: int, how: Damage) -> tuple[str, int, int]:
    """Damages the batch at an offset; answers where it is."""
    segment = log.segments[log.segments.index_of(Offset(offset))]
    place = segment.locate(Offset(offset))
    assert place is not None
    content = bytearray(segment.file.read_at(place.position, place.size_bytes))
    how(content)
    file = disk.open(segment.log_path)
    file.write_at(place.position, [content])
    file.close()
    return segment.log_path, place.position, place.size_bytes


def found(log: Log) -> tuple[list[int], list[Skipped]]:
    """The offsets that could be read, and what was skipped."""
    offsets: list[int] = []
    skipped: list[Skipped] = []
    for each in read_intact(log):
        if isinstance(each, Intact):
            offsets += [offset for batch in each.batches for offset in range(batch.base_offset, batch.next_offset)]
        else:
            skipped.append(each)
    return offsets, skipped


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("offset", [1, 2, 3, 5, 9])
def test_all_but_the_corrupt_batch_is_read(how: str, offset: int) -> None:
    """In the middle of a segment, at the end of a sealed one, and at the end of the log."""
    disk = SimDisk()
    log = new_log(disk)
    fill(log, 10)
    assert [0, 4, 8] == [segment.base_offset for segment in log.segments]
    place = damaged(disk, log, offset, DAMAGES[how])
    expected = [Skipped(*place, Offset(offset), Offset(offset + 1))]
    assert ([each for each in range(10) if each != offset], expected) == found(log)


def test_neighbours_are_skipped_together() -> None:
    disk = SimDisk()
    log = new_log(disk)
    fill(log, 10)
    path, position, size = damaged(disk, log, 1, flip_record)
    _, _, more = damaged(disk, log, 2, shorten)
    damaged(disk, log, 6, flip_record)
    offsets, skipped = found(log)
    assert [0, 3, 4, 5, 7, 8, 9] == offsets
    assert [Skipped(path, position, size + more, Offset(1), Offset(3)), (Offset(6), Offset(7))] == [
        skipped[0],
        skipped[1][-2:],
    ]


def test_a_batch_larger_than_what_is_read_at_a_time() -> None:
    log = new_log(config=CONFIG.__class__(segment_bytes=8 << 20, max_message_bytes=8 << 20))
    append(log, batch(bytes(3 << 20)), batch(b"small"))
    assert ([0, 1], []) == found(log)


def test_nothing_is_skipped_before_the_start_of_the_log() -> None:
    log = new_log()
    fill(log, 10)
    log.advance_start(Offset(2))
    assert ([2, 3, 4, 5, 6, 7, 8, 9], []) == found(log)
