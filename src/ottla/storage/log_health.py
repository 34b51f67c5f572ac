"""What is wrong with one log, as far as it is known, and who is told. What to do about it is the broker's duty.

A log that *failed* has files that cannot be trusted until they are read again. One that is *damaged* has a corrupt
batch, found by a reader, a search or the cleaner; the rest of it can be read and written. One that *refused* could not
write what it was given, because the disk is full for example, and is as it was before.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ottla.model.errors import CorruptError, OttlaError, StorageError
from ottla.storage.scanner import DamagedSegmentError

_LOGGER: Final = logging.getLogger(__name__)


class LogHealth:
    """Of each kind of trouble the last one; `on_trouble` is called for every one.

    `damage` is what the opening of the log has found, and logged. `name` is the partition's. `offsets_of` says which
    offsets a corrupt batch covers, as text.
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
        """The worst that is wrong; None if it is well."""
        return self.failure or self.damage or self.refusal

    @property
    def is_sound(self) -> bool:
        """Whether all that it has can be read, whatever could not be written."""
        return self.failure is None and self.damage is None

    def fail(self, error: StorageError) -> StorageError:
        """The files are in doubt; answers the error."""
        self.failure = error
        self._on_trouble()
        return error

    def note_damage(self, error: CorruptError) -> None:
        """A batch is corrupt. The first one is logged, and says what is damaged until the log is repaired."""
        if self.damage is None:
            offsets = self._offsets_of(error) if isinstance(error, DamagedSegmentError) else ""
            self.damage = CorruptError(f"{error}; {offsets}" if offsets else str(error))
            _LOGGER.error("partition %s: corrupt batch in the log: %s", self._name, self.damage)
            self._on_trouble()

    def note_refusal(self, error: StorageError) -> StorageError:
        """Something could not be written, and nothing has changed; answers the error."""
        if self.refusal is None:
            # Not the error itself: its traceback would keep files open that may be removed meanwhile.
            self.refusal = StorageError(str(error))
            self._on_trouble()
        return error

    @contextmanager
    def noting_damage(self) -> Iterator[None]:
        """Notes a corrupt batch that is found inside; not one that is whole, and never made sense."""
        try:
            yield
        except DamagedSegmentError as damage:
            self.note_damage(damage)
            raise

    @contextmanager
    def noting_refusals(self) -> Iterator[None]:
        """Notes a StorageError that is raised inside."""
        try:
            yield
        except StorageError as error:
            self.note_refusal(error)
            raise
        self.refusal = None
