"""Share sessions: which partitions a member fetches, remembered between its requests.

Pure. A session begins with epoch 0 and every request must carry the next epoch; -1 ends it. It also ends when its
connection closes. Sessions are never evicted: a broker that has as many as it may refuses new ones.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.error_codes import ErrorCode

OPENING_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

Place = tuple[UUID, int]
"""A partition, by topic id and index."""


class SessionKey(NamedTuple):
    """A member of a group."""

    group_id: str
    member_id: str


class ShareSession:
    """One member's; `epoch` is that of its next request."""

    __slots__ = ("connection", "epoch", "key", "owner", "partitions")

    def __init__(self, key: SessionKey, connection: object, owner: object, partitions: Iterable[Place]) -> None:
        self.key = key
        self.epoch = 1
        self.connection = connection
        self.owner = owner
        self.partitions: dict[Place, None] = dict.fromkeys(partitions)

    def rotated(self) -> list[Place]:
        """The partitions, beginning with another one in each request, so that none starves."""
        places = list(self.partitions)
        at = (self.epoch - 1) % len(places) if places else 0
        return places[at:] + places[:at]


class SessionRefusedError(Exception):
    """The request does not fit the member's session."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class ShareSessions:
    """All sessions of a broker."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[object, dict[SessionKey, None]] = {}
        self._group_sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey, owner: object) -> ShareSession | None:
        """The session of a member; that of another user does not exist for this one."""
        found = self._sessions.get(key)
        return found if found is not None and found.owner == owner else None

    def has(self, session: ShareSession) -> bool:
        """Whether this very session still exists."""
        return self._sessions.get(session.key) is session

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._group_sizes

    def open(
        self, key: SessionKey, connection: object, owner: object, partitions: Sequence[Place], sessions_max: int
    ) -> tuple[ShareSession, ShareSession | None]:
        """A request with epoch 0. Returns the new session, and the one that it replaces."""
        known = self._sessions.get(key)
        if known is not None and known.owner != owner:
            raise SessionRefusedError(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session belongs to another user.")
        if known is None and len(self._sessions) >= sessions_max:
            raise SessionRefusedError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"The broker has its maximum of {sessions_max} share sessions."
            )
        if known is not None:
            self.end(known)
        session = ShareSession(key, connection, owner, partitions)
        self._sessions[key] = session
        self._by_connection.setdefault(connection, {})[key] = None
        self._group_sizes[key.group_id] = self._group_sizes.get(key.group_id, 0) + 1
        return session, known

    def proceed(self, key: SessionKey, owner: object, epoch: int) -> ShareSession:
        """A request with another epoch; one with the closing epoch leaves the session as it is."""
        session = self.get(key, owner)
        if session is None:
            raise SessionRefusedError(ErrorCode.SHARE_SESSION_NOT_FOUND, "There is no share session of the member.")
        if epoch == CLOSING_EPOCH:
            return session
        if epoch != session.epoch:
            raise SessionRefusedError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"The share session's epoch is {session.epoch}, not {epoch}."
            )
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        return session

    def end(self, session: ShareSession) -> None:
        """Ends a session, if it exists."""
        key = session.key
        if not self.has(session):
            return
        del self._sessions[key]
        of_connection = self._by_connection.get(session.connection, {})
        of_connection.pop(key, None)
        if not of_connection:
            self._by_connection.pop(session.connection, None)
        left = self._group_sizes[key.group_id] - 1
        if left:
            self._group_sizes[key.group_id] = left
        else:
            del self._group_sizes[key.group_id]

    def of_connection(self, connection: object) -> list[ShareSession]:
        """The sessions that end with a connection."""
        return [self._sessions[key] for key in self._by_connection.get(connection, {})]
