"""What is wrong with one log, as far as it is known, and who is told. What to do about it is the broker's duty.

A log that *failed* has files that nobody can trust until they are read anew. One that is *damaged* has a batch whose
bytes have rotten, whoever came across it, a reader, a search, or the cleaner; the rest of it can be read and written.
One that *refused* could not write what it was given, for want of room, say, and is as it was before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.model.errors import CorruptError, OttlaError, StorageError
from ottla.storage.scanner import DamagedSegmentError


class LogHealth:
    """Of each kind of trouble the last one; `on_trouble` is called for every one."""

    __slots__ = ("_on_trouble", "damage", "failure", "refusal")

    def __init__(self, on_trouble: Callable[[], None], damage: CorruptError | None = None) -> None:
        self._on_trouble = on_trouble
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
        """A batch has rotten."""
        if self.damage is None:
            self.damage = CorruptError(str(error))
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
        """Notes a rotten batch that is found inside; not one that is whole, and never made sense."""
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
