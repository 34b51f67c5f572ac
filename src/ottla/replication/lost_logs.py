"""Logs that are missing or end early when the broker starts: found, logged, and noted in the metadata.

A broker that is in the ISR of a partition, or eligible to lead it, has acknowledged all committed records. It has lost
its log if the folder is gone or has no segments, if the log ends below what the checkpoint files say, or if it cannot
be opened. It has also lost its log if the data dir is an older copy, restored from a backup: the metadata store and
each data dir count the broker's starts, and a copy made before the last start has a lower count. A partition that was
just created never had a folder here: its topic is newer than the metadata whose folders were all created
(`DataDir.applied_revision`), and no checkpoint file has it.

Each loss is logged and committed to the partition's record before the broker registers and before a folder is created,
so that a broker that dies in between finds the same loss again. The controller then keeps the broker from leading
(`elections_state.py`), and the log is copied from the leader. While every replica of the ISR has lost its log, no
folder is created: the partition has no leader, and a restored folder can be told from an empty one. A partition without
other replicas is served with what is left, and its offsets continue after those that were assigned before.

Records that a power cut took before they were flushed are not a loss in this sense: then the broker registers as not
intact (decision 11). Decision 14 has the arguments.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from ottla.controller.controller import Controller
from ottla.env.ports import Clock
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from ottla.metadata.records import topic_key
from ottla.model.ids import BrokerId, Offset, TopicPartition
from ottla.storage.data_dirs.data_dir import DataDir
from ottla.storage.log_store import NOTHING_LOST, LogStore, Shortfall
from ottla.storage.segments.closed_segments import OffsetRange

_LOGGER: Final = logging.getLogger(__name__)


class LostLog(NamedTuple):
    """A partition whose log is missing or ends early here, as its record was when that was found."""

    name: TopicPartition
    record: PartitionImage
    what: str
    end_offset: Offset
    """Where the log had ended at least; 0 if that is not known."""
    is_proven: bool
    """Whether it cannot be explained by a power cut before a flush."""
    start_offset: Offset = Offset(0)
    """Where the missing offsets begin, as far as that is known."""


class LostLogs:
    """The losses that one start of the broker has found. `report` them before folders are created."""

    def __init__(self, broker: BrokerId, store: LogStore, clock: Clock) -> None:
        self._me = broker
        self._store = store
        self._clock = clock
        self._lost: dict[TopicPartition, LostLog] = {}
        self._revision = 0
        """Images from this revision on show what was reported."""
        self._older: list[DataDir] = []
        """Data dirs that are older copies, as long as the metadata may count on what they lack."""
        self._starts = 0
        """How often this broker has started, this time included unless a data dir is an older copy."""

    async def report(self, image: ClusterImage, controller: Controller) -> None:
        """Finds the losses, logs them, and notes them in the metadata. Raises StorageError if that cannot be written.

        Also takes back what an earlier start has noted, if the log is there again.
        """
        counted = image.starts.get(self._me, 0)
        usable = [each for each in self._store.dirs if each.failure is None]
        self._older = [each for each in usable if each.starts is not None and each.starts < counted]
        for each in self._find(image):
            if each.is_proven:
                self._lost[each.name] = each
                if each.name in self._store.bare:
                    self._store.set_aside(each.name)
            else:
                _LOGGER.error(
                    "partition %s: %s. The machine went down, so the log may not have been flushed: starting with an"
                    " empty log",
                    each.name, each.what,
                )  # fmt: skip
        found = [name for name, record in self._assigned(image) if self._is_found(name, record)]
        shared = [name for name, each in self._lost.items() if each.record.replicas != (self._me,)]
        if shared or found:
            self._revision = await controller.note_losses(self._me, shared, found)
        for each in self._lost.values():
            self._on_lost(each)
        for name in found:
            end_offset = self._store.get(name).end_offset
            _LOGGER.warning("partition %s: the lost log was restored, up to end offset %d", name, end_offset)
        if self._older:
            # Not counted: if the newest copy is brought back, it must not be taken for an older one.
            self._starts = counted
            return
        self._starts = max(counted, *(each.starts or 0 for each in usable)) + 1
        # The data dirs first: a broker that dies in between must not take its own data dir for an older copy.
        if self._note_start(usable):
            await controller.note_start(self._me, self._starts)

    def _note_start(self, dirs: Iterable[DataDir]) -> bool:
        """Notes in these data dirs how often the broker has started; False if one of them cannot be written."""
        try:
            for each in dirs:
                each.note_start(self._starts)
        except OSError as error:
            _LOGGER.warning(
                "%s: cannot write: %s; the broker would not detect that this data dir was replaced by an older copy",
                error.filename, error.strerror,
            )  # fmt: skip
            return False
        return True

    def _assigned(self, image: ClusterImage) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        for topic in image.topics.values():
            for index, record in enumerate(topic.partitions):
                if self._me in (*record.isr, *record.eligible):
                    yield TopicPartition(topic.name, index), record

    def _find(self, image: ClusterImage) -> Iterator[LostLog]:
        store = self._store
        applied = store.applied_revision
        # A data dir that is new or cannot be used lacks folders for another reason than a power cut.
        lost_folders = any(each.is_new or each.failure is not None for each in store.dirs)
        kept_folders = not any(each.lost_power for each in store.dirs)
        for name, record in self._assigned(image):
            had_folder = applied is None or bool(self._older) or image.revision_of(topic_key(name.topic)) <= applied
            short = store.shortfalls.get(name, Shortfall(Offset(0), Offset(0)))
            if name in store.offline:
                if record.replicas != (self._me,):
                    yield LostLog(name, record, f"the log cannot be opened: {store.offline[name]}", Offset(0), True)
            elif store.find(name) is None or name in store.bare:
                was_empty = short.is_exact and not short.end and not self._older
                if short.end or (had_folder and not was_empty) or self._me in record.lost:
                    what = "the log has no segments" if name in store.bare else "the log folder is missing"
                    is_proven = bool(short.end) or lost_folders or kept_folders or self._me in record.lost
                    is_proven = is_proven or bool(self._older)
                    yield LostLog(name, record, f"{what}; {_missing(short)}", short.end, is_proven, short.start)
            elif short.end:
                what = f"the log ends at offset {short.start}; {_missing(short)}"
                yield LostLog(name, record, what, short.end, True)
            elif store.dir_of(name) in self._older:
                where, end = store.dir_of(name).path, store.get(name).end_offset
                what = f"{where} is a copy from before the last start of this broker; the log ends at offset {end}"
                yield LostLog(name, record, what, Offset(0), True)

    def _is_found(self, name: TopicPartition, record: PartitionImage) -> bool:
        return self._me in record.lost and name not in self._lost and self._store.find(name) is not None

    def _on_lost(self, lost: LostLog) -> None:
        name, record = lost.name, lost.record
        log = self._store.find(name)
        if record.replicas == (self._me,):
            if log is not None and lost.end_offset > log.end_offset:
                log.lost = (*log.lost, OffsetRange(log.end_offset, lost.end_offset))
                log.roll(self._clock.now_ms(), base_offset=lost.end_offset)
                log.flush()
            _LOGGER.error(
                "partition %s: %s. This broker has the only replica: the log continues at offset %d, and the missing"
                " records can only be restored from a backup",
                name, lost.what, log.end_offset if log is not None else lost.end_offset,
            )  # fmt: skip
            return
        if log is not None:
            log.lost_end = lost.end_offset
        elif name not in self._store.offline:
            self._store.keep_checkpoints(name)
        others = [each for each in (*record.isr, *record.eligible) if each != self._me and each not in record.lost]
        if others:
            _LOGGER.error(
                "partition %s: %s. Broker %d left the ISR and copies the log again; in-sync replicas: %s",
                name, lost.what, self._me, others,
            )  # fmt: skip
        else:
            _LOGGER.error("partition %s: %s. %s", name, lost.what, self._remedy(name, record))

    def _remedy(self, name: TopicPartition, record: PartitionImage) -> str:
        outside = [each for each in record.replicas if each not in (*record.isr, *record.eligible, *record.lost)]
        return (
            f"No other in-sync replica has it, so the partition has no leader. Restore the folder {name} of broker"
            f" {self._me} and restart it; or accept that records are lost and elect another replica {outside}:"
            f" ottla cluster elect --unclean --topic {name.topic} --partition {name.partition}"
        )

    # While the broker runs

    def on_image(self, image: ClusterImage) -> None:
        """Treats older copies as current ones, once the metadata does not count on what they lack."""
        if not self._older or image.revision < self._revision:
            return
        is_counted_on = any(self._is_counted_on_and_lost(record) for _, record in self._assigned(image))
        if not is_counted_on and self._note_start(self._older):
            self._older = []

    def is_pending(self, name: TopicPartition, revision: int) -> bool:
        """Whether an image of this revision does not show the loss yet: no folder must be created for it."""
        return name in self._lost and revision < self._revision

    def reason_held_back(self, name: TopicPartition, record: PartitionImage, revision: int) -> str | None:
        """Why a partition with this record, in an image of this revision, must not get a new folder; None if it may."""
        lost = self._lost.get(name)
        if self.is_pending(name, revision):
            return "the log was lost; waiting until the cluster metadata has recorded the loss"
        if not self._is_counted_on_and_lost(record):
            return None
        return f"{lost.what if lost is not None else 'the log folder is missing'}. {self._remedy(name, record)}"

    def _is_counted_on_and_lost(self, record: PartitionImage) -> bool:
        return self._me in record.lost and self._me in (*record.isr, *record.eligible)

    def range_before_new_log(self, name: TopicPartition, record: PartitionImage) -> OffsetRange:
        """The lost offsets after which a new log begins. Empty if the log is copied from the leader.

        With other replicas an unclean election has accepted the loss, so that the log starts at the end of the range.
        """
        lost = self._lost.get(name)
        is_only = record.replicas == (self._me,)
        if lost is None or (record.leader != self._me and not is_only):
            return NOTHING_LOST
        return OffsetRange(lost.start_offset if is_only else lost.end_offset, lost.end_offset)

    def on_record(self, name: TopicPartition, record: PartitionImage, revision: int) -> None:
        """To be called when a partition with this record is held: forgets a loss that the cluster does not count on."""
        if name in self._lost and revision >= self._revision and not self._is_counted_on_and_lost(record):
            del self._lost[name]
            self._store.get(name).lost_end = Offset(0)

    def warnings(self, image: ClusterImage) -> Iterator[str]:
        """The partitions whose log this broker has lost, as the image says, and what happens to them."""
        for topic in image.topics.values():
            for index, record in enumerate(topic.partitions):
                if self._me not in record.lost:
                    continue
                name = TopicPartition(topic.name, index)
                if self._is_counted_on_and_lost(record):
                    yield f"partition {name}: the log was lost. {self._remedy(name, record)}"
                elif record.leader == NO_LEADER:
                    yield f"partition {name}: the log was lost; waiting for a leader to copy it from"
                else:
                    yield f"partition {name}: the log was lost and is copied again from broker {record.leader}"

    def forget(self, topics: Collection[str]) -> None:
        """These topics were deleted."""
        self._lost = {name: each for name, each in self._lost.items() if name.topic not in topics}


def _missing(short: Shortfall) -> str:
    if short.end <= short.start:
        return "the checkpoint files do not record its offsets"
    return f"offsets {short.start} to {short.end - 1} are missing ({short.end - short.start} records)"
