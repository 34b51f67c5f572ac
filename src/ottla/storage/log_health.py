"""What is known to be wrong with one log. What to do about it is decided in `ottla.replication.log_repairs`.

A log that *failed* has files that cannot be trusted until they are opened again. A *damaged* log has a corrupt batch,
found by a reader, a search or the cleaner; the rest of it can be read and written. A log that *refused* a write, for
example because the disk is full, is unchanged.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ottla.model.errors import CorruptError, OttlaError, StorageError
from ottla.storage.segments.scanner import DamagedSegmentError

_LOGGER: Final = logging.getLogger(__name__)


class LogHealth:
    """The last problem of each kind; `on_trouble` is called for each one.

    `damage` was found and logged when the log was opened. `name` is the partition. `offsets_of` returns the offsets
    that a corrupt batch covers, as text.
    """

    __slots__ = ("_name", "_offsets_of", "_on_trouble", "damage", "failure", "refusal")

    def __init__(
        self,
        on_trouble: Callable[[], None],
        damage: CorruptError | None = None,
        *,
        name: str = "",
        offsets_of: Callable[[DamagedSegmentError], str] = lambda damage: "",
    ) -> None:
        self._on_trouble = on_trouble
        self._name = name
        self._offsets_of = offsets_of
        self.failure: StorageError | None = None
        self.damage = damage
        self.refusal: StorageError | None = None

    @property
    def trouble(self) -> OttlaError | None:
        """The worst problem; None if there is none."""
        return self.failure or self.damage or self.refusal

    @property
    def is_sound(self) -> bool:
        """Whether all records can be read, even if some could not be written."""
        return self.failure is None and self.damage is None

    def fail(self, error: StorageError) -> StorageError:
        """The files are in an unknown state; returns the error."""
        self.failure = error
        self._on_trouble()
        return error

    def note_damage(self, error: CorruptError) -> None:
        """A batch is corrupt. The first one is logged, and stays here until the log is repaired."""
        if self.damage is None:
            offsets = self._offsets_of(error) if isinstance(error, DamagedSegmentError) else ""
            self.damage = CorruptError(f"{error}; {offsets}" if offsets else str(error))
            _LOGGER.error("partition %s: corrupt batch in the log: %s", self._name, self.damage)
            self._on_trouble()

    def forget_damage(self, damage: CorruptError) -> None:
        """This damage is gone, since the log starts behind it now. Damage that was found later stays."""
        if self.damage is damage:
            self.damage = None

    def note_refusal(self, error: StorageError) -> StorageError:
        """A write failed and nothing has changed; returns the error."""
        if self.refusal is None:
            # Not the error itself: its traceback would keep files open that may be removed in the meantime.
            self.refusal = StorageError(str(error))
            self._on_trouble()
        return error

    @contextmanager
    def noting_damage(self) -> Iterator[None]:
        """Notes a corrupt batch that is found inside the block, but not a batch that was accepted although it is
        invalid."""
        try:
            yield
        except DamagedSegmentError as damage:
            self.note_damage(damage)
            raise

    @contextmanager
    def noting_refusals(self) -> Iterator[None]:
        """Notes a StorageError that is raised inside the block."""
        try:
            yield
        except StorageError as error:
            self.note_refusal(error)
            raise
        self.refusal = None
