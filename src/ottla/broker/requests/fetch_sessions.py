"""Incremental fetch sessions: the broker remembers what a consumer fetches, so that requests list only what changed.

Pure. A session is made by a full fetch with epoch 0, then grows and shrinks by what each request adds and forgets, and
answers only with what is new. The cache holds a bounded number of sessions and of partitions in them; a new session
takes the place of one that was unused for long, or is not made at all, which every client accepts.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.env.ports import Random
from ottla.model.error_codes import ErrorCode
from ottla.protocol.scan import FetchRequest

NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
EVICTION_SECONDS: Final = 120.0
"""A session that was not used for this long may be evicted for another consumer."""

PARTITIONS_MAX: Final = 250_000
"""Of all sessions, also for partitions that do not exist: each takes about 250 bytes while its session exists."""


class SessionPartition:
    """What one session fetches from one partition, and what it was last sent."""

    __slots__ = (
        "current_epoch",
        "fetch_offset",
        "high_watermark",
        "index",
        "last_epoch",
        "log_start",
        "log_start_told",
        "max_bytes",
        "topic",
    )

    def __init__(self, wanted: tuple[str | bytes, int, int, int, int, int, int]) -> None:
        self.topic = wanted[0]
        self.index = wanted[1]
        self.high_watermark = -1
        self.log_start = -1
        self.update(wanted)

    def update(self, wanted: tuple[str | bytes, int, int, int, int, int, int]) -> None:
        """The consumer fetches from another offset."""
        self.current_epoch = wanted[2]
        self.fetch_offset = wanted[3]
        self.last_epoch = wanted[4]
        self.log_start_told = wanted[5]
        """Where the log of a follower begins; -1 of a consumer."""
        self.max_bytes = wanted[6]

    def has_news(self, error_code: int, high_watermark: int, log_start: int, size: int) -> bool:
        """Whether the response must include the partition; remembers what is sent."""
        is_news = size > 0 or error_code != 0 or self.high_watermark != high_watermark or self.log_start != log_start
        # An error is told again each time, and what follows it is news.
        self.high_watermark = -1 if error_code else high_watermark
        self.log_start = log_start
        return is_news


class FetchSession:
    """One consumer's; `epoch` is that of the next request."""

    __slots__ = ("by_id", "epoch", "id", "owner", "partitions", "used")

    def __init__(self, session_id: int, *, owner: object, by_id: bool, now: float) -> None:
        self.id = session_id
        self.owner = owner
        self.epoch = 1
        self.by_id = by_id
        self.used = now
        self.partitions: dict[tuple[str | bytes, int], SessionPartition] = {}

    def update(self, request: FetchRequest) -> None:
        """Takes over what the request adds, changes and forgets."""
        for wanted in request.wanted:
            key = (wanted[0], wanted[1])
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = SessionPartition(wanted)
            else:
                known.update(wanted)
        for key in request.forgotten:
            self.partitions.pop(key, None)

    def rotate(self, served: list[tuple[str | bytes, int]]) -> None:
        """Partitions with records move to the end, so that the response's size limit starves none."""
        for key in served:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition


class FetchPlan(NamedTuple):
    """How to answer one request: what to read, and which session remembers it."""

    partitions: list[SessionPartition]
    session: FetchSession | None
    """None if every partition must be in the response."""
    session_id: int
    is_full: bool
    error: ErrorCode = ErrorCode.NONE


class FetchSessions:
    """All sessions of a broker, `slots_max` at most."""

    def __init__(self, random: Random, slots_max: int) -> None:
        self._random = random
        self._slots_max = slots_max
        self._sessions: dict[int, FetchSession] = {}
        self._partitions = 0
        """Those of all sessions."""
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    @property
    def slots_max(self) -> int:
        """How many sessions there may be."""
        return self._slots_max

    def plan(self, request: FetchRequest, now: float, owner: object = None) -> FetchPlan:
        """What a request means, given what its session knows. The sessions of other owners do not exist for it: an id
        that was guessed neither shows their topics nor ends them."""
        session_id, epoch = request.session_id, request.session_epoch
        known = self._sessions.get(session_id)
        if known is not None and known.owner != owner:
            known = None
        if epoch in (FULL_EPOCH, CLOSING_EPOCH):
            if known is not None:
                self.forget(session_id)
            wanted = [SessionPartition(each) for each in request.wanted]
            session = self._begin(request, wanted, now, owner) if epoch == FULL_EPOCH and request.version >= 7 else None
            return FetchPlan(wanted, session, session.id if session else NO_SESSION, True)
        return self._continue(known, request, now)

    def _begin(
        self, request: FetchRequest, wanted: list[SessionPartition], now: float, owner: object
    ) -> FetchSession | None:
        if not wanted or not self._make_room(len(wanted), now):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = 1 + self._random.randrange(_EPOCH_MAX)
        session = FetchSession(session_id, owner=owner, by_id=request.version >= 13, now=now)
        session.partitions = {(each.topic, each.index): each for each in wanted}
        self._sessions[session_id] = session
        self._partitions += len(session.partitions)
        return session

    def _continue(self, session: FetchSession | None, request: FetchRequest, now: float) -> FetchPlan:
        if session is None:
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return _refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != (request.version >= 13):
            return _refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.partitions)
        session.update(request)
        self._partitions += len(session.partitions) - before
        if not session.partitions:
            # Nothing is wanted any more: the place is better used by another.
            self.forget(session.id)
            return FetchPlan([], None, NO_SESSION, True)
        if self._partitions > PARTITIONS_MAX:
            # Told so, a client asks for everything again, and gets it without a session.
            self.forget(session.id)
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        # Moved to the end, so that the first is the one that was unused for longest.
        self._sessions[session.id] = self._sessions.pop(session.id)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.used = now
        return FetchPlan(list(session.partitions.values()), session, session.id, False)

    def _make_room(self, partitions: int, now: float) -> bool:
        if partitions > PARTITIONS_MAX:
            return False
        while len(self._sessions) >= self._slots_max or self._partitions + partitions > PARTITIONS_MAX:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used < EVICTION_SECONDS:
                return False
            self.forget(oldest.id)
            self.evicted += 1
        return True

    def forget(self, session_id: int) -> None:
        """Ends a session, if there is one with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)


def _refused(error: ErrorCode) -> FetchPlan:
    return FetchPlan([], None, NO_SESSION, True, error)
