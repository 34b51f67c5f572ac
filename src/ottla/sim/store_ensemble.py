"""The ensemble of the simulated metadata store: keys, sessions, history, and reachability.

The fault model is in `store.py`, which has the clients.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.env.ports import Clock, Random
from ottla.env.wait_first import wait_first
from ottla.metadata.key_table import Held, KeyDraft, KeyTable
from ottla.metadata.store import Change, Entry, Operation, RevisionGoneError


@dataclass(slots=True, kw_only=True)
class StoreFaults:
    """What may go wrong on the way; to be changed at any time."""

    delay_max_ms: float = 2.0
    lost_request_share: float = 0.0
    lost_answer_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBackup:
    """Everything that the ensemble held at some moment."""

    revision: int
    keys: dict[str, Held]
    history: list[list[Change]]
    made: dict[str, int]

    @property
    def lease_count(self) -> int:
        """How many of the keys are leases."""
        return sum(held.owner is not None for held in self.keys.values())


EMPTY_STORE: Final = StoreBackup(revision=0, keys={}, history=[], made={})


class SessionOverError(Exception):
    """The ensemble does not know the session any more."""


class LostError(Exception):
    """The connection broke; `may_have_arrived` tells whether the request may have been carried out."""

    def __init__(self, may_have_arrived: bool) -> None:
        super().__init__()
        self.may_have_arrived = may_have_arrived


class SimMetadata:
    """The ensemble. Counts what it did in `commits`, and the faults in `fault_counts`."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        *,
        faults: StoreFaults | None = None,
        session_timeout_ms: int = 9_000,
        changes_kept: int | None = None,
    ) -> None:
        self.clock = clock
        self.random = random
        self.faults = faults or StoreFaults()
        self.session_seconds = session_timeout_ms / 1000
        self.table = KeyTable()
        self.fault_counts = {"lost requests": 0, "lost answers": 0, "expiries": 0, "cuts": 0, "outages": 0}
        self._changes_kept = changes_kept
        self._history: list[list[Change]] = []
        self._made: dict[str, int] = {}
        self._deadlines: dict[str, float] = {}
        self._tokens = 0
        self._is_out = False
        self._cut: list[object] = []
        self._changed = asyncio.Event()

    # Faults

    def begin_outage(self) -> None:
        """Makes the ensemble unreachable for all clients."""
        self.fault_counts["outages"] += not self._is_out
        self._is_out = True
        self.announce()

    def end_outage(self) -> None:
        """The ensemble is there again, and gives every session a whole timeout."""
        self._is_out = False
        for token in self._deadlines:
            self._deadlines[token] = self.clock.monotonic() + self.session_seconds
        self.announce()

    def cut(self, client: object) -> None:
        """One client does not reach the ensemble any more."""
        if client not in self._cut:
            self.fault_counts["cuts"] += 1
            self._cut.append(client)
            self.announce()

    def heal(self, client: object) -> None:
        """Undoes `cut`."""
        if client in self._cut:
            self._cut.remove(client)
            self.announce()

    def expire(self, token: str) -> None:
        """Ends a session, if it exists; its client notices at its next request."""
        if token in self._deadlines:
            self.fault_counts["expiries"] += 1
            self.end_session(token)

    def is_reachable(self, client: object) -> bool:
        """Whether anything passes between a client and the ensemble."""
        return not self._is_out and client not in self._cut

    def backup(self) -> StoreBackup:
        """What `restore` brings back."""
        return StoreBackup(
            revision=self.table.revision,
            keys=dict(self.table.items()),
            history=list(self._history),
            made=dict(self._made),
        )

    def restore(self, backup: StoreBackup) -> None:
        """Replaces all keys by those of a backup, while no client is connected. Its leases expire, as after a kill."""
        self.table = KeyTable(backup.revision, dict(backup.keys))
        self._history = list(backup.history)
        self._made = dict(backup.made)
        for token in sorted(self.table.owners()):
            self._deadlines[token] = self.clock.monotonic() + self.session_seconds
        self.announce()

    # Sessions

    def begin_session(self, before: str | None) -> str:
        """A new session, in the place of one that the same process had."""
        if before is not None:
            self.end_session(before)
        self._tokens += 1
        token = f"session-{self._tokens}"
        self._deadlines[token] = self.clock.monotonic() + self.session_seconds
        return token

    def touch(self, token: str) -> bool:
        """A session sent a sign of life; False if it has ended."""
        if not self._lives(token):
            return False
        self._deadlines[token] = self.clock.monotonic() + self.session_seconds
        return True

    def end_session(self, token: str) -> None:
        """Removes a session with its leases, in one commit."""
        if self._deadlines.pop(token, None) is not None:
            self.make([(key, None) for key, _ in self.table.owned_by([token])])

    def end_silent_sessions(self) -> None:
        """Ends expired sessions; called for every request and wait."""
        for token in list(self._deadlines):
            if not self._is_out and self._deadlines[token] <= self.clock.monotonic():
                self.fault_counts["expiries"] += 1
                self.end_session(token)

    def next_deadline(self) -> float | None:
        """When the next session's time is up."""
        return None if self._is_out else min(self._deadlines.values(), default=None)

    def _lives(self, token: str) -> bool:
        self.end_silent_sessions()
        return token in self._deadlines

    # Keys

    def commit(self, name: str, operations: Sequence[Operation], owner: str | None) -> int:
        """Makes a commit, once for each name. Raises ConflictError; with an owner that is gone, SessionOverError."""
        self.end_silent_sessions()
        if name in self._made:
            return self._made[name]
        if owner is not None and owner not in self._deadlines:
            raise SessionOverError
        self._made[name] = self.make(KeyDraft(self.table).commit(operations), owner)
        return self._made[name]

    def make(self, written: Sequence[tuple[str, bytes | None]], owner: str | None = None) -> int:
        """Writes what a commit decided to."""
        if written:
            self._history.append(self.table.apply(written, owner))
            self.announce()
        return self.table.revision

    def held_by(self, key: str) -> tuple[int, str | None]:
        """The revision of a key, 0 if it does not exist, and the owner of its lease."""
        self.end_silent_sessions()
        held = self.table.get(key)
        return (0, None) if held is None else (held.revision, held.owner)

    def snapshot(self) -> tuple[int, list[Entry]]:
        """All keys."""
        self.end_silent_sessions()
        return self.table.revision, self.table.entries()

    def changes_after(self, revision: int) -> list[list[Change]]:
        """The commits after a revision; RevisionGoneError where they are not kept."""
        self.end_silent_sessions()
        newest = self.table.revision
        oldest = 0 if self._changes_kept is None else max(0, newest - self._changes_kept)
        if not oldest <= revision <= newest:
            raise RevisionGoneError(
                f"the store has the changes after revision {oldest} up to {newest}, not those after {revision}: take a "
                "snapshot and follow from there"
            )
        return self._history[revision:]

    def announce(self) -> None:
        """Wakes all waiters."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_changed(self) -> None:
        """Returns after the next commit, the next fault, or when a session's time is up."""
        deadline = self.next_deadline()
        if deadline is None:
            await self._changed.wait()
            return
        await wait_first(self._changed.wait(), self.clock.sleep(max(0.0, deadline - self.clock.monotonic())))
        self.end_silent_sessions()
