"""Which process holds a lease, told so exactly that another one on the same machine can see whether it still lives.

A process id alone would be taken for another process that got it later, so its start time stands beside it; the boot id
tells one life of the machine from the next, and the process namespace one container from another. Nothing here
decides about leases: that is in `sqlite_file.py`.
"""

import os
import uuid
from pathlib import Path
from typing import Final

import msgspec

_HIDDEN: Final = ""
"""When a process started of which this one may not know more than that it is there."""


class LeaseOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of one lease. `token` is that lease's; the rest says which process it is, "" where it is not known."""

    token: str
    pid: int
    start_ticks: str = ""
    boot_id: str = ""
    pid_namespace: str = ""


def this_process() -> LeaseOwner:
    """A holder in the process that asks."""
    pid = os.getpid()
    return LeaseOwner(
        token=uuid.uuid4().hex,
        pid=pid,
        start_ticks=_start_ticks(pid) or "",
        boot_id=_boot_id(),
        pid_namespace=_pid_namespace(),
    )


def is_gone(owner: LeaseOwner) -> bool:
    """Whether the owner is certainly dead. False also where this process cannot see it: its lease has to expire."""
    if not owner.boot_id or not owner.start_ticks:
        return False
    if owner.boot_id != _boot_id():
        return True
    return owner.pid_namespace == _pid_namespace() and _start_ticks(owner.pid) not in (owner.start_ticks, _HIDDEN)


def with_new_token(owner: LeaseOwner) -> LeaseOwner:
    """The same process as the holder of another lease."""
    return msgspec.structs.replace(owner, token=uuid.uuid4().hex)


def can_be_seen(owner: LeaseOwner) -> bool:
    """Whether the owner's process id means the same here as there."""
    return bool(owner.start_ticks) and owner.boot_id == _boot_id() and owner.pid_namespace == _pid_namespace()


def _start_ticks(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; None if there is none, or if it only waits to be reaped."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        # `/proc` may be mounted so that it hides what other users run.
        return _HIDDEN if _exists(pid) else None
    # The second field is the program's name in parentheses, which may hold anything, so fields count from its end.
    fields = status.rpartition(")")[2].split()
    return None if len(fields) < 20 or fields[0] in "ZX" else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
