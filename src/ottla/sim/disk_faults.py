"""Which operation of the simulated disk fails, and how: counting, planning and striking.

Covers faults planned by operation number and faults that stick to a path. What a crash leaves on the disk is decided
in `inode.py` and `folders.py`.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.sim.folders import os_error

TRACE_OPERATIONS_MAX: Final = 100_000
"""How many operations the trace keeps, the first ones; long simulations only count on."""


class SimulatedCrash(BaseException):
    """The machine, or the process, is dead at this instant. Not an `Exception`: no handler of ordinary failures may
    carry on after it."""


class Moment(Enum):
    """When in an operation a planned fault strikes."""

    BEFORE = "before"
    """Nothing of it has happened."""
    MIDDLE = "middle"
    """Half of a write is done; any other operation is completed, but the caller gets no result.

    (A crash before a sync is also a crash in its middle: what is unsynced then survives in part.)
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One mutating call, by its running number from 0."""

    number: int
    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.number} {self.name} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A fault waiting for its operation."""

    fault: OSError | SimulatedCrash
    moment: Moment


class Faults:
    """The disk's bad luck, all of it planned."""

    __slots__ = ("_broken", "_planned", "_read_only", "dead", "operation_count", "trace")

    def __init__(self) -> None:
        self.dead = False
        self.operation_count = 0
        self.trace: list[Operation] = []
        self._planned: dict[int, Planned] = {}
        self._broken: dict[str, int] = {}
        self._read_only: set[str] = set()

    def plan(self, number: int, fault: OSError | SimulatedCrash | type[SimulatedCrash], moment: Moment) -> None:
        """The operation of this number will fail, once."""
        if isinstance(fault, type):
            fault = fault(f"at operation {number}")
        self._planned[number] = Planned(fault=fault, moment=moment)

    def forget_plans(self) -> None:
        """What was planned and has not struck will not."""
        self._planned.clear()

    def break_path(self, path: str, code: int) -> None:
        """Everything at or below this path fails, reads too, until healed."""
        self._broken[path] = code

    def make_read_only(self, path: str) -> None:
        """Every change at or below this path fails with EROFS, until healed."""
        self._read_only.add(path)

    def heal(self, path: str) -> None:
        """Undoes `break_path` and `make_read_only` of exactly this path."""
        self._broken.pop(path, None)
        self._read_only.discard(path)

    def touch(self, path: str) -> None:
        """Every operation passes here first, reads too."""
        if self.dead:
            raise SimulatedCrash(f"the machine went down; a handle or disk from before cannot reach {path}")
        for broken, code in self._broken.items():
            if _is_within(path, broken):
                raise os_error(code, path)

    def touch_to_change(self, path: str) -> None:
        """What would change the disk passes here, before it counts."""
        self.touch(path)
        if any(_is_within(path, folder) for folder in self._read_only):
            raise os_error(errno.EROFS, path)

    def begin(self, name: str, path: str) -> Planned | None:
        """Counts an operation that is about to happen. Strikes if that was planned for before it; a fault planned for
        its middle is returned, for the caller to do half and `strike`."""
        number = self.operation_count
        self.operation_count += 1
        if number < TRACE_OPERATIONS_MAX:
            self.trace.append(Operation(number=number, name=name, path=path))
        planned = self._planned.pop(number, None)
        if planned is not None and planned.moment is Moment.BEFORE:
            self.strike(planned)
        return planned

    def strike(self, planned: Planned | None) -> None:
        """Raises the fault, if there is one; a crash ends every handle and the disk itself."""
        if planned is None:
            return
        if isinstance(planned.fault, SimulatedCrash):
            self.dead = True
        raise planned.fault

    @contextmanager
    def atomic(self, name: str, path: str) -> Iterator[None]:
        """Around an operation that happens whole or not at all."""
        planned = self.begin(name, path)
        yield
        self.strike(planned)


def _is_within(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(folder + "/")
