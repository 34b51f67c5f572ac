"""What must be true of a log, compared with its model or with its own files. Each function raises AssertionError."""

from collections.abc import Sequence
from dataclasses import replace
from struct import Struct
from typing import Final

from ottla.env.ports import Disk
from ottla.model.errors import OffsetOutOfRangeError
from ottla.model.ids import Offset
from ottla.records.batch import Batch, scan
from ottla.storage.data_dirs import names
from ottla.storage.log import Log
from ottla.storage.producers.producer_state import ProducerEntry
from ottla.storage.segments.index_file import IndexFile
from ottla.storage.segments.segment import Segment
from tests.state.log_model import LogModel, Producer, Producers, Span, replayed

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_TEMPORARY: Final = (names.DELETED, names.CLEANED, names.SWAP, ".tmp")


def check_bounds(log: Log, model: LogModel, *, forgetful: bool) -> None:
    """The offsets that readers and replicas go by."""
    assert (model.start, model.high_watermark, model.end) == (log.start_offset, log.high_watermark, log.end_offset)
    assert log.start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset
    assert log.recovery_point <= log.end_offset
    lower, upper = model.stable_bounds()
    assert lower <= log.last_stable_offset <= (upper if forgetful else lower)
    log.producers.check()


def check_epochs(log: Log, model: LogModel) -> None:
    """The history names each batch's epoch, and begins one where its first batch stands, or in the gap before that."""
    starts = log.epochs.starts
    assert list(starts.items()) == sorted(starts.items())
    assert all(start <= log.end_offset for start in starts.values()), f"{starts} reach beyond {log.end_offset}"
    readable = [batch for batch in model.batches if batch.base_offset >= log.start_offset]
    for batch in readable:
        assert batch.leader_epoch == log.epochs.epoch_at(Offset(batch.base_offset))
    for epoch, start in starts.items():
        older = [batch for batch in readable if batch.base_offset < start]
        assert not older or older[-1].next_offset <= start, f"epoch {epoch} begins at {start}, within {older[-1]}"
        assert all(batch.leader_epoch < epoch for batch in older), f"epoch {epoch} begins before {start}"


# Producers


def check_producers(log: Log, model: LogModel, *, reloaded: bool = False) -> None:
    """The log knows every producer as replaying the batches gives them.

    What lies before the first segment is known only if its snapshot survived, so a producer may also look as if the log
    had begun there, or began anew once before it. A log that read its producers from a snapshot has forgotten all but
    the last batch of each.
    """
    whole = model.producers
    first = log.segments[0].base_offset
    partial = replayed(batch for batch in model.batches if batch.base_offset >= first)
    found = {int(entry.producer_id): entry for entry in log.producers}
    assert set(partial.known) <= set(found) <= set(whole.known)
    for producer_id, entry in found.items():
        candidates = [known for each in (whole, partial) if (known := each.known.get(producer_id)) is not None]
        if producer_id not in partial.known:
            assert set(_spans(entry)) <= set(candidates[0].spans)
            assert entry.epoch <= candidates[0].epoch
            continue
        candidates += [
            replace(known, spans=tuple(span for span in known.spans if span.first_offset >= first))
            for known in candidates
        ]
        assert any(_is_known_as(entry, each, reloaded=reloaded) for each in candidates), (entry, candidates)


def _is_known_as(entry: ProducerEntry, known: Producer, *, reloaded: bool) -> bool:
    spans = _spans(entry)
    if reloaded:
        remembered = bool(spans) == bool(known.spans) and spans == known.spans[len(known.spans) - len(spans) :]
    else:
        remembered = spans == known.spans
    return remembered and (entry.epoch, entry.coordinator_epoch, entry.transaction_start) == (
        known.epoch,
        known.coordinator_epoch,
        known.transaction_start,
    )


def _spans(entry: ProducerEntry) -> tuple[Span, ...]:
    return tuple(
        Span(span.first_sequence, span.last_sequence, span.first_offset, span.last_offset) for span in entry.batches
    )


def producers_as_reloaded(log: Log, model: LogModel) -> Producers:
    """The log's own view of its producers, once it has been checked."""
    known = {
        int(entry.producer_id): Producer(
            epoch=entry.epoch,
            spans=_spans(entry),
            coordinator_epoch=entry.coordinator_epoch,
            transaction_start=entry.transaction_start,
        )
        for entry in log.producers
    }
    return Producers(known, replayed(model.batches).decided)


def check_aborted(log: Log, model: LogModel) -> None:
    """Readers of committed records are told which transactions to leave out.

    One whose records all lie before the first segment may be unknown, as its producer may be; nobody can read them. For
    the same reason one that began before the start may be known to have begun later.
    """
    partial = replace(
        model, producers=replayed(batch for batch in model.batches if batch.base_offset >= log.segments[0].base_offset)
    )
    for start in (log.start_offset, (log.start_offset + log.end_offset) // 2):
        needed, allowed = (each.aborted(start, log.end_offset) for each in (partial, model))
        found = [
            (each.producer_id, each.first_offset, each.last_offset)
            for each in log.aborted_transactions(Offset(start), log.end_offset)
        ]
        assert found == sorted(found, key=lambda each: each[2])
        exact = {each for each in found if each[1] >= log.start_offset}
        assert exact <= {*needed, *allowed}
        assert {(each[0], each[2]) for each in found} <= {(each[0], each[2]) for each in (*needed, *allowed)}
        assert {(producer, marker) for producer, _, marker in needed} <= {(each[0], each[2]) for each in found}


# Batches


def read_batches(log: Log) -> list[Batch]:
    """Every batch from the start to the end, as a follower fetches them, one at a time."""
    found: list[Batch] = []
    offset = log.start_offset
    while (piece := log.read(offset, 1, upper=log.end_offset)) is not None:
        batches, end, problem = scan(piece.file.read_at(piece.position, piece.size))
        assert problem is None, problem
        assert (1, piece.size) == (len(batches), end)
        found += batches
        offset = batches[-1].next_offset
    return found


def check_content(log: Log, model: LogModel) -> None:
    """The log holds the model's batches, byte for byte."""
    assert [batch.data for batch in model.visible()] == [bytes(batch.buffer) for batch in read_batches(log)]


def check_read(
    log: Log, model: LogModel, offset: int, max_bytes: int, upper: int | None, *, at_least_one: bool
) -> None:
    """A read answers what it promises: from the batch that holds the offset, within the bounds, at least one."""
    arguments = Offset(offset), max_bytes
    limit = model.high_watermark if upper is None else upper
    try:
        piece = log.read(*arguments, upper=None if upper is None else Offset(upper), at_least_one=at_least_one)
    except OffsetOutOfRangeError:
        assert not model.start <= offset <= model.end
        return
    assert model.start <= offset <= model.end
    reached = [batch for batch in model.batches if batch.last_offset >= offset]
    first = reached[0] if reached else None
    if offset >= limit or first is None or first.last_offset >= limit:
        assert piece is None
        return
    if max_bytes < len(first.data) and not at_least_one:
        assert piece is None
        return
    bases = [segment.base_offset for segment in log.segments]
    segment_end = min((base for base in bases if base > first.base_offset), default=model.end)
    below = [batch.data for batch in reached if batch.last_offset < limit and batch.base_offset < segment_end]
    expected = b"".join(below)[: max(max_bytes, len(first.data))]
    assert piece is not None
    assert expected == piece.file.read_at(piece.position, piece.size)


def surviving(log: Log, timelines: Sequence[LogModel], *, flushed_end: int, durable_start: int) -> LogModel:
    """The state that a crash left, which must be the beginning of one of the timelines, with all that was flushed."""
    found = [bytes(batch.buffer) for batch in read_batches(log)]
    start, end = log.start_offset, log.end_offset
    assert durable_start <= start <= max(each.start for each in timelines), (durable_start, start)
    assert flushed_end <= end, f"flushed up to {flushed_end}, but the log ends at {end}"
    for timeline in timelines:
        before = [batch for batch in timeline.batches if batch.last_offset < start]
        behind = [batch for batch in timeline.batches if batch.last_offset >= start][: len(found)]
        if found == [batch.data for batch in behind]:
            kept = before + behind
            assert end >= (kept[-1].next_offset if kept else start)
            return LogModel(
                batches=kept, start=start, end=end, high_watermark=log.high_watermark, producers=replayed(kept)
            )
    raise AssertionError(f"{len(found)} batches from {start} to {end} are the beginning of no timeline")


# Files and indexes


def check_tidy(disk: Disk, log: Log) -> None:
    """An opened folder holds nothing that waits to be finished or unlinked."""
    assert [] == [name for name in disk.list_dir(log.folder) if name.endswith(_TEMPORARY)]
    check_files(disk, log)


def check_files(disk: Disk, log: Log) -> None:
    """The folder holds the log's segments and no others, each as large as the log believes."""
    listed = disk.list_dir(log.folder)
    bases = [names.base_offset_of(name) for name in listed if name.endswith(names.LOG)]
    assert bases == [segment.base_offset for segment in log.segments]
    for segment in log.segments:
        assert segment.size_bytes == disk.size(segment.log_path)
    for name in listed:
        if name.endswith(names.SEGMENT_SUFFIXES):
            assert names.base_offset_of(name) in bases, name
    for at, segment in enumerate(log.segments):
        batches = segment_batches(segment)
        assert all(batch.base_offset >= segment.base_offset for batch in batches)
        assert not batches or batches[-1].next_offset <= log.segments.end_of(at)


def segment_batches(segment: Segment) -> list[Batch]:
    """All batches of a segment, CRC checked."""
    batches, end, problem = scan(segment.file.read_at(0, segment.size_bytes))
    assert (segment.size_bytes, None) == (end, problem)
    return batches


def check_indexes(log: Log) -> None:
    """Every index entry is true, and a sealed segment's last time entry has its largest timestamp."""
    for segment in log.segments:
        batches = segment_batches(segment)
        largest, last_offset = -1, int(segment.base_offset)
        rises: dict[int, int] = {}
        for batch in batches:
            if batch.max_timestamp > largest:
                largest, last_offset = batch.max_timestamp, batch.last_offset
                rises[last_offset] = largest
        assert (largest, last_offset) == tuple(segment.largest)
        base = segment.base_offset
        places = {batch.last_offset: batch.position for batch in batches}
        for relative, position in _entries(segment.offset_index.entries, _OFFSET_ENTRY):
            assert places.get(Offset(base + relative)) == position
        times = _entries(segment.time_index.entries, _TIME_ENTRY)
        for timestamp, relative in times:
            assert rises.get(base + relative) == timestamp
        if segment is not log.segments.active and largest >= 0:
            assert largest == times[-1][0]


def _entries(index: IndexFile, entry: Struct) -> list[tuple[int, ...]]:
    found = list(entry.iter_unpack(bytes(index.entries())))
    assert index.count == len(found)
    assert found == sorted(found)
    return found


def check_retention(log: Log, before: LogModel, segments: Sequence[tuple[int, int, int]], count: int, now: int) -> None:
    """Retention took from the front what is old, too much or before the start; never the unreplicated."""
    config = log.config
    surplus = sum(size for _, size, _ in segments) - config.retention_bytes if config.retention_bytes >= 0 else 0
    expected = 0
    for at, (_, size, newest) in enumerate(segments):
        end = segments[at + 1][0] if at + 1 < len(segments) else before.end
        is_last = at + 1 == len(segments)
        is_old = config.retention_ms >= 0 and now - newest > config.retention_ms
        goes = is_old or (surplus >= size and not is_last) or end <= before.start
        if size == 0 or end > before.high_watermark or not goes:
            break
        surplus -= size
        expected += 1
    assert expected == count
    first = segments[expected][0] if expected < len(segments) else before.end
    assert first == log.segments[0].base_offset
