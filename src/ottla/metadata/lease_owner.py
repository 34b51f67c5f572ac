"""The process that holds a lease, described so that another process on the same machine can see whether it is alive.

A process id can be reused, so it is stored with the process's start time. The boot id changes with every boot of the
machine, and the pid namespace tells containers apart. What happens to leases is decided in `sqlite/sqlite_file.py` and
`zookeeper/local_sessions.py`.
"""

import os
import uuid
from pathlib import Path
from typing import Final

import msgspec

_HIDDEN: Final = ""
"""The start time of a process that exists but cannot be inspected."""


class LeaseOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of one lease. `token` identifies the lease, the rest the process; "" where unknown."""

    token: str
    pid: int
    start_ticks: str = ""
    boot_id: str = ""
    pid_namespace: str = ""


def this_process() -> LeaseOwner:
    """This process as a holder."""
    pid = os.getpid()
    return LeaseOwner(
        token=uuid.uuid4().hex,
        pid=pid,
        start_ticks=_start_ticks(pid) or "",
        boot_id=_boot_id(),
        pid_namespace=_pid_namespace(),
    )


def is_gone(owner: LeaseOwner) -> bool:
    """Whether the owner is certainly dead. False if this process cannot see it: then its lease must expire."""
    if not owner.boot_id or not owner.start_ticks:
        return False
    if owner.boot_id != _boot_id():
        return True
    return owner.pid_namespace == _pid_namespace() and _start_ticks(owner.pid) not in (owner.start_ticks, _HIDDEN)


def with_new_token(owner: LeaseOwner) -> LeaseOwner:
    """The same process as the holder of another lease."""
    return msgspec.structs.replace(owner, token=uuid.uuid4().hex)


def can_be_seen(owner: LeaseOwner) -> bool:
    """Whether the owner's process id has the same meaning in this process."""
    return bool(owner.start_ticks) and owner.boot_id == _boot_id() and owner.pid_namespace == _pid_namespace()


def _start_ticks(pid: int) -> str | None:
    """When a process started, in kernel ticks; None if it does not exist or is a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        # `/proc` may be mounted so that it hides the processes of other users.
        return _HIDDEN if _exists(pid) else None
    # The second field is the program's name in parentheses and may contain anything, so count fields from its end.
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
