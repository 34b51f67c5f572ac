"""The steps of a queue, as writes to its companion's log: the moments at which tests copy the files of a broker."""

from collections.abc import Callable

from ottla.queues.progress_records import Action, Plan, ProgressRecord, decode
from ottla.records.control import read_progress
from tests.crash.watched_disk import LogWrite, Sees


def progress(companion: str, is_meant: Callable[[ProgressRecord], bool]) -> Sees:
    """The queue writes a progress record to its log."""

    def sees(write: LogWrite) -> bool:
        values = [value for batch in write.batches if batch.is_control for _, value in read_progress(batch)]
        return write.topic == companion and any(is_meant(decode(value)) for value in values)

    return sees


def noted(companion: str, kind: type[ProgressRecord]) -> Sees:
    """The queue writes a progress record of this kind."""
    return progress(companion, lambda record: isinstance(record, kind))


def plan_of(companion: str, action: Action) -> Sees:
    """The queue writes a plan with this action."""
    return progress(companion, lambda record: isinstance(record, Plan) and record.action is action)
