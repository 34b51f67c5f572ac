"""Whole batches in the wrong place, as after a misdirected write: their checksums are right, and their offsets show it.

Nothing is skipped or truncated in silence.
"""

import pytest

from ottla.model.errors import CorruptError
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.log import Log
from tests.unit.storage.rig import DATA, P0, close, disk_of, fill, image_of, open_store, read_from

FOLDER = f"{DATA}/t-0"
COUNT = 10
BATCH = 79
"""The size of each batch; the last segment has two."""


def path_of(offset: int) -> str:
    return f"{FOLDER}/{offset // 4 * 4:020}{names.LOG}"


def with_exchanged(disk: SimDisk, first: int, second: int, *, repeats: bool) -> SimDisk:
    """A disk on which the second batch is in the first one's place, and perhaps also the other way round."""
    image = {path: bytearray(content) for path, content in image_of(disk).items()}
    places = [(image[path_of(each)], each % 4 * BATCH) for each in (first, second)]
    contents = [bytes(file[at : at + BATCH]) for file, at in places]
    (file, at), (other, behind) = places
    file[at : at + BATCH] = contents[1]
    if not repeats:
        other[behind : behind + BATCH] = contents[0]
    return disk_of({path: bytes(content) for path, content in image.items()})


def served(log: Log) -> tuple[list[int], list[int]]:
    """The offsets that can be read, and those that are refused."""
    found, refused = [], []
    for offset in range(COUNT):
        try:
            read = [each.base_offset for each in read_from(log, offset)]
        except CorruptError:
            refused.append(offset)
            continue
        if [offset] == read:
            found.append(offset)
        elif any(start <= offset < end for start, end in log.lost):
            refused.append(offset)
    return found, refused


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("crash", ["stopped", "killed", "killed unflushed", "power cut"])
@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0), (1, 2), (2, 6), (4, 5), (6, 2), (7, 8), (8, 9), (9, 8)])
def test_each_offset_is_read_or_refused(first: int, second: int, crash: str, repeats: bool) -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(P0)
    fill(log, COUNT)
    match crash:
        case "stopped":
            close(store)
        case "killed unflushed":
            store.checkpoints.save()
            disk = disk.kill()
        case _:
            log.flush()
            store.checkpoints.save()
            disk = disk.kill() if crash == "killed" else disk.crash()
    log = open_store(with_exchanged(disk, first, second, repeats=repeats)).get(P0)
    log.advance_high_watermark(log.end_offset)
    found, refused = served(log)
    assert (COUNT, list(range(COUNT))) == (log.end_offset, sorted([*found, *refused]))
    assert refused == [first] if repeats else refused and set(refused) <= {first, second}
    assert log.health.damage is not None


def test_a_leader_checks_the_order_of_what_it_appended_itself_when_it_is_asked_for_what_is_missing() -> None:
    disk = SimDisk()
    log = open_store(disk).create(P0, None)
    fill(log, 3)
    path = f"{FOLDER}/{0:020}{names.LOG}"
    content = disk.read(path)
    file = disk.open(path)
    file.write_at(BATCH, [content[2 * BATCH : 3 * BATCH], content[BATCH : 2 * BATCH]])
    with pytest.raises(CorruptError):
        read_from(log, 1)
    assert log.health.damage is not None
