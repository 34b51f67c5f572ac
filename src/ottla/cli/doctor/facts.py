"""What the probes of `ottla doctor` found. None where this system does not say."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The interpreter and the hardware, as far as this process may use it."""

    python: tuple[int, int, int]
    implementation: str
    system: str
    kernel: str
    architecture: str
    cores: float
    """Less than the machine has if a cgroup or an affinity mask limits the process."""
    memory_bytes: int | None
    memory_available_bytes: int | None
    cpu_features: frozenset[str] | None
    """As /proc/cpuinfo names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the kernel and of this process; None for those without limit or unknown."""

    open_files: int | None
    """The hard limit: a broker raises its soft limit to it."""
    file_bytes: int | None
    address_space_bytes: int | None
    mappings: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The clocks of the machine."""

    is_synchronized: bool | None
    error_max_us: int | None
    """The largest error that the kernel expects, in microseconds."""
    source: str | None
    step_ms: float
    """How far the time of day moved against the monotonic clock while the doctor ran."""
    observed_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """One data dir: the file system below it, and how fast it is."""

    path: str
    exists: bool
    probed: str
    """The data dir, or the nearest folder above it that exists."""
    failure: str | None
    """Why nothing can be written there."""
    mode: int | None
    """Permissions of the data dir, if it exists."""
    lock_owner: str | None
    """The running broker that uses the data dir."""
    free_bytes: int
    total_bytes: int
    free_inodes: int | None
    """None if the file system does not count them."""
    file_system: str | None
    mount_point: str | None
    mount_options: frozenset[str]
    write_bytes_per_second: float | None
    sync_ms: tuple[float, ...]
    """How long each sync of a small append took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address that a broker is to listen on."""

    option: str
    host: str
    port: int
    failure: str | None
    """Why it cannot be bound; None if it is free."""
    is_in_use: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime for Spark."""

    home: str
    major: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that Ottla asks for, and the version that is installed."""

    name: str
    wanted: str
    """Version bounds such as `>=2.2,<3`; may be empty."""
    installed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Ottla itself and the packages that it asks for."""

    version: str
    kernels_missing: tuple[str, ...]
    """Compiled modules that cannot be imported, each with the reason."""
    required: tuple[Package, ...]
    extras: Mapping[str, tuple[Package, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What the options and the file of `--config` say about the broker."""

    file: str | None
    failure: str | None
    """Why a broker would refuse them."""
    keys: tuple[str, ...] = ()
    """The configs that are set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswer:
    """What the brokers of `--bootstrap` said."""

    bootstrap: str
    failure: str | None
    brokers: int = 0
    milliseconds: float = 0.0
    """Median round trip of a small request to a broker."""
    problems: tuple[str, ...] = ()
