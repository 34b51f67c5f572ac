"""The ports: everything that Ottla asks of the world outside the process.

Each is small, so that its simulated twin can be exact. Paths are plain strings with `/`; failures of the disk arrive as
`OSError` with the usual errno, whoever implements the port.
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
        """Returns after that long by the monotonic clock."""


class Random(Protocol):
    """Randomness; one seed replays it in a simulation."""

    def random(self) -> float:
        """A float in [0, 1)."""

    def randrange(self, stop: int) -> int:
        """An integer in [0, stop)."""

    def randbytes(self, size: int) -> bytes:
        """That many random bytes; fit for ids, not for secrets."""


class File(Protocol):
    """An open file. Writes go to the page cache and survive the process; only `sync` makes them survive the machine.

    The operating system's handle is released by `close`, or when the last reference goes: a file that is being sent
    stays readable until the sender drops it, even after it was removed.
    """

    @property
    def path(self) -> str:
        """Where it was when opened; a rename does not change this."""

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Writes all bytes of all buffers, gathered in one call where possible.

        Or raises; then any part may be written.
        """

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fills the buffer as far as the file reaches, and says how far."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Cuts the file, or extends it with zeros."""

    def sync(self) -> None:
        """Returns once all that was written, and the size, would survive a power cut.

        Blocks: call it in the background.
        """

    def fileno(self) -> int:
        """The handle, for `sendfile`; the simulated disk has none and raises."""

    def close(self) -> None: ...


class Mapping(Protocol):
    """A file's bytes as memory, for reading, as mmap gives them."""

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
        """Names this life of the machine: while it is the same, nothing that was written is lost. "" if unknown."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Opens an existing file, or with `create` makes it if it is missing."""

    def map(self, path: str) -> Mapping:
        """Maps a file for reading. It must not be resized while it is mapped: to look at bytes cut off is fatal."""

    def read(self, path: str) -> bytes:
        """The whole of a small file."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> TimestampMs:
        """When the file was last written to, by the wall clock."""

    def truncate(self, path: str, size: int) -> None: ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""

    def is_dir(self, path: str) -> bool: ...

    def make_dir(self, path: str) -> None:
        """One folder in an existing one; nothing happens if it is there."""

    def make_dirs(self, path: str) -> None:
        """The folder and those above it; nothing happens if it is there. Their names are synced."""

    def remove(self, path: str) -> None:
        """Removes a file; missing is an error."""

    def remove_tree(self, path: str) -> None:
        """Removes a folder with all in it; missing is not an error."""

    def rename(self, source: str, target: str) -> None:
        """Atomically gives a file or folder another name, replacing a file of that name."""

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """What may still be written on this path's file system."""

    def total_bytes(self, path: str) -> int:
        """The size of that file system."""

    def try_lock(self, path: str, owner: str) -> Lock | str:
        """Takes an exclusive lock and writes `owner` into the file; or, if it is held, answers who holds it."""

    async def in_background(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs what waits for the disk in a thread, so that the event loop does not."""


class Helper(Protocol):
    """Runs what computes in another process, so that the event loop keeps its interpreter to itself."""

    async def run(self, function: Callable[..., T], /, *args: Any) -> T:
        """Calls a module-level function with arguments that pickle; its exception is raised here."""

    async def close(self) -> None: ...


class Socket(Protocol):
    """One non-blocking stream connection."""

    def recv_into(self, buffer: memoryview) -> int:
        """What has arrived, 0 at the end of the stream; raises BlockingIOError when there is nothing."""

    def send(self, buffers: Sequence[Buffer], *, more: bool = False) -> int:
        """Sends what fits and says how much; `more` promises that another send follows at once."""

    def send_file(self, file: File, position: int, size: int) -> int:
        """Sends a range of a file without copying it through the process, as much as fits."""

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Calls back from the event loop while there is something to receive; None stops it."""

    def expect(self, size: int) -> None:
        """A hint: until told otherwise, `on_readable` need not call before so many bytes, or the end, are there."""

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Calls back from the event loop while there is room to send; None stops it."""

    def peer(self) -> str:
        """The other side's address, for people."""

    def close(self) -> None: ...


class Listener(Protocol):
    """An open port."""

    @property
    def port(self) -> int: ...

    def close(self) -> None: ...


class Network(Protocol):
    """Stream connections to and from other processes."""

    def connect(self, host: str, port: int) -> Awaitable[Socket]: ...

    def listen(self, host: str, port: int, on_accept: Callable[[Socket], None]) -> Awaitable[Listener]: ...
