"""The ports: everything that Ottla needs from outside the process.

Each is small, so that its simulation can be exact. Paths are strings with `/`; disk failures are raised as `OSError`
with the usual errno by every implementation.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

from ottla.model.buffer import Buffer
from ottla.model.ids import TimestampMs

P = ParamSpec("P")
T = TypeVar("T")


class Clock(Protocol):
    """Time."""

    def now_ms(self) -> TimestampMs:
        """The wall clock, which may jump."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Returns after this many seconds of the monotonic clock."""


class Random(Protocol):
    """Randomness; a simulation replays it from a seed."""

    def random(self) -> float:
        """A float in [0, 1)."""

    def randrange(self, stop: int) -> int:
        """An integer in [0, stop)."""

    def randbytes(self, size: int) -> bytes:
        """This many random bytes; suitable for ids, not for secrets."""


class File(Protocol):
    """An open file. Writes go to the page cache and survive the process; only `sync` makes them survive a power cut.

    The operating system's handle is released by `close`, or when the last reference is dropped: a file that is being
    sent stays readable until the sender drops it, even after it was removed.
    """

    @property
    def path(self) -> str:
        """The path when it was opened; a rename does not change it."""

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Writes all bytes of all buffers, gathered in one call where possible.

        Or raises; then any part may be written.
        """

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Reads into the buffer until it is full or the file ends; returns the number of bytes."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Truncates the file, or extends it with zeros."""

    def sync(self) -> None:
        """Returns once everything that was written, and the size, would survive a power cut.

        Blocks: call it in the background.
        """

    def fileno(self) -> int:
        """The file descriptor, for `sendfile`; the simulated disk has none and raises."""

    def close(self) -> None: ...


class Mapping(Protocol):
    """A read-only memory map of a file."""

    @property
    def view(self) -> memoryview:
        """The whole file, read-only."""

    def close(self) -> None:
        """Unmaps; raises BufferError while a slice taken from `view` is alive."""


class Lock(Protocol):
    """Held until released, or until the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Files and folders.

    A created, renamed or removed name survives a power cut only after `sync_dir` of its folder.
    """

    @property
    def boot_id(self) -> str:
        """The boot id of the machine: while it is the same, nothing that was written is lost. "" if unknown."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Opens an existing file, or with `create` creates it if it is missing."""

    def open_scratch(self, folder: str) -> File:
        """A new file without a name in this folder's file system, for data that is not needed after the process."""

    def map(self, path: str) -> Mapping:
        """Maps a file for reading. It must not be truncated while it is mapped: reading truncated bytes is fatal."""

    def read(self, path: str) -> bytes:
        """The content of a small file."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> TimestampMs:
        """When the file was last written to, by the wall clock."""

    def truncate(self, path: str, size: int) -> None: ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""

    def is_dir(self, path: str) -> bool: ...

    def make_dir(self, path: str) -> None:
        """Creates a folder in an existing one; does nothing if it exists."""

    def make_dirs(self, path: str) -> None:
        """Creates the folder and its parents; does nothing if it exists. Their names are synced."""

    def remove(self, path: str) -> None:
        """Removes a file; raises if it is missing."""

    def remove_tree(self, path: str) -> None:
        """Removes a folder with everything in it; does nothing if it is missing."""

    def rename(self, source: str, target: str) -> None:
        """Atomically renames a file or folder, replacing a file of the new name."""

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """The free space of this path's file system."""

    def total_bytes(self, path: str) -> int:
        """The size of that file system."""

    def try_lock(self, path: str, owner: str) -> Lock | str:
        """Takes an exclusive lock and writes `owner` into the file; if the lock is held, returns its owner."""

    async def in_background(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs blocking disk work in a thread, so that the event loop is not blocked."""


class Helper(Protocol):
    """Runs CPU-bound work in another process, so that it does not hold the event loop's GIL."""

    async def run(self, function: Callable[..., T], /, *args: Any) -> T:
        """Calls a module-level function with picklable arguments; its exception is raised here."""

    async def close(self) -> None: ...


class Socket(Protocol):
    """One non-blocking stream connection."""

    def recv_into(self, buffer: memoryview) -> int:
        """Receives what has arrived; 0 at the end of the stream. Raises BlockingIOError if there is nothing."""

    def send(self, buffers: Sequence[Buffer], *, more: bool = False) -> int:
        """Sends what fits and returns the number of bytes; `more` promises that another send follows at once."""

    def send_file(self, file: File, position: int, size: int) -> int:
        """Sends a range of a file without copying it through the process, as much as fits."""

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Calls back from the event loop while there is something to receive; None stops it."""

    def expect(self, size: int) -> None:
        """A hint: until changed, `on_readable` need not be called before this many bytes, or the end, have arrived."""

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Calls back from the event loop while there is room to send; None stops it."""

    def peer(self) -> str:
        """The peer's address as text."""

    def descriptor(self) -> int | None:
        """The operating system's handle, for kernel TLS; None if it has none, as in the simulation."""

    def close(self) -> None: ...


class Listener(Protocol):
    """A listening port."""

    @property
    def port(self) -> int: ...

    def close(self) -> None: ...


class UnresolvedHostError(OSError):
    """A host name has no address, or the name service cannot tell; `strerror` is a complete message for users."""


class Network(Protocol):
    """Stream connections to and from other processes."""

    def connect(self, host: str, port: int) -> Awaitable[Socket]:
        """A connection. Raises OSError; `UnresolvedHostError` if the host has no address."""

    def listen(self, host: str, port: int, on_accept: Callable[[Socket], None]) -> Awaitable[Listener]: ...
