"""Reading a file batch by batch, and telling which of two batches that contradict each other is at fault."""

import pytest

from ottla.model.ids import LeaderEpoch, Offset
from ottla.sim.disk import SimDisk
from ottla.storage.segments.scanner import PIECE_BYTES, BatchOrder, DamagedSegmentError, Piece, scan_file
from tests.unit.storage.rig import batch, put

PATH = "/0.log"


def scanned(content: bytes, *, check_crc: bool = True) -> list[tuple[int, int]]:
    """Position and base offset of each batch."""
    disk = SimDisk()
    put(disk, PATH, content)
    found = []
    for piece in scan_file(disk.open(PATH), 0, len(content), check_crc=check_crc):
        found += [(piece.position + each.position, int(each.base_offset)) for each in piece.batches]
    return found


def one(base_offset: int, epoch: int = 1, size: int = 1) -> bytes:
    return bytes(batch(bytes(size), base_offset=base_offset, leader_epoch=epoch).buffer)


def test_batches_across_pieces() -> None:
    contents = [one(number, size=400_000) for number in range(9)]
    positions = [sum(map(len, contents[:number])) for number in range(9)]
    assert list(zip(positions, range(9), strict=True)) == scanned(b"".join(contents))


def test_a_batch_larger_than_a_piece() -> None:
    contents = [one(0), one(1, size=3 * PIECE_BYTES), one(2)]
    assert [0, 1, 2] == [base for _, base in scanned(b"".join(contents))]


def test_nothing() -> None:
    assert [] == scanned(b"")


@pytest.mark.parametrize("size", [1, 60, 61, 69])
def test_cut_off(size: int) -> None:
    first, second = one(0), one(1)
    with pytest.raises(DamagedSegmentError, match=f"{PATH}, byte {len(first)}: ") as caught:
        scanned(first + second[:size])
    assert (PATH, len(first)) == (caught.value.path, caught.value.position)


def test_a_length_beyond_the_file() -> None:
    huge = bytearray(one(0, size=2 * PIECE_BYTES))
    huge[8] = 0x7F
    with pytest.raises(DamagedSegmentError, match=f"{PATH}, byte 0: .*incomplete"):
        scanned(bytes(huge))


def test_the_checksum_if_asked() -> None:
    rotten = bytearray(one(0) + one(1))
    rotten[-1] ^= 1
    with pytest.raises(DamagedSegmentError, match="checksum"):
        scanned(bytes(rotten))
    assert [0, 1] == [base for _, base in scanned(bytes(rotten), check_crc=False)]


class TestOrder:
    def follow(
        self, *batches: tuple[int, int], following: tuple[int, int] | None = None, flushed_end: int = 2**62
    ) -> tuple[list[int], int | None]:
        """Which of these (offset, epoch) are good, and which is at fault."""
        contents = [one(base, epoch) for base, epoch in batches]
        disk = SimDisk()
        put(disk, PATH, b"".join(contents))
        (piece,) = scan_file(disk.open(PATH), 0, sum(map(len, contents)))
        order = BatchOrder(PATH, Offset(0), flushed_end=Offset(flushed_end))
        after = None if following is None else (Offset(following[0]), LeaderEpoch(following[1]))
        good, damage = order.follow(Piece(*piece), after)
        at = None if damage is None else damage.position // len(contents[0])
        return [int(each.base_offset) for each in good], at

    def test_in_order_with_gaps(self) -> None:
        assert ([0, 1, 5], None) == self.follow((0, 1), (1, 1), (5, 3), following=(6, 3))

    def test_one_that_is_too_small(self) -> None:
        assert ([0, 1], 2) == self.follow((0, 1), (1, 1), (0, 1), (3, 1))

    def test_one_that_is_too_large(self) -> None:
        assert ([0], 1) == self.follow((0, 1), (900, 1), (2, 1), (3, 1))
        assert ([0], 1) == self.follow((0, 1), (900, 1), following=(2, 1))

    def test_epochs_too(self) -> None:
        assert ([0], 1) == self.follow((0, 1), (1, 9), (2, 1))
        assert ([0, 1], 2) == self.follow((0, 1), (1, 2), (2, 0), (3, 2))

    def test_what_follows_cannot_accuse_what_it_does_not_fit(self) -> None:
        assert ([0, 1], None) == self.follow((0, 1), (1, 1), following=(0, 1))

    def test_left_overs_behind_what_was_flushed_accuse_nobody(self) -> None:
        assert ([0], 1) == self.follow((0, 2), (0, 1), flushed_end=1)
        assert ([0], 1) == self.follow((0, 2), (0, 1), flushed_end=0)
