"""A fetch session (KIP-227): the broker remembers what a consumer asks for, so requests name only what changed. Pure.

A request for everything with epoch 0 starts a session. Each later request increments the epoch and names only the
partitions that are new, are asked for at another offset, or are not wanted any more; the response leaves out partitions
without news. After any error the next request names everything and starts a new session. A session belongs to one
connection with one request at a time; the frames are in `fetch_frames.py`.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from ottla.client.errors import RetriableAnswerError
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated
from ottla.protocol.fetch_frames import NO_SESSION, Fetched, Wanted, read_session_answer
from ottla.protocol.fields import BrokenAnswerError

EPOCH_MAX: Final = 2**31 - 1
"""Followed by 1: epoch 0 would start a new session."""
_NONE: Final = 0
_SESSION_CODES: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class SessionRequest(NamedTuple):
    """The fields of a request: the session id and epoch, the partitions it names, and those to forget."""

    session: tuple[int, int]
    wanted: Sequence[Wanted]
    forgotten: Sequence[TopicPartition] = ()


class FetchSessionState:
    """One session. Each `ask` is followed by one of `read` and `on_lost`."""

    def __init__(self, *, is_lasting: bool = True) -> None:
        self._is_lasting = is_lasting
        """Whether a session is used at all; if not, each request names everything."""
        self._id = _NONE
        self._epoch = 0
        """Of the next request; 0 starts a session and ends the session `_id`, if there is one."""
        self._known: dict[TopicPartition, Wanted] = {}
        """What the broker remembers after the last request."""
        self.begun = 0
        """How many requests named everything to start a session."""

    def ask(self, wanted: Sequence[Wanted]) -> SessionRequest:
        """The request for exactly these partitions. Partitions of the same topic must be adjacent."""
        if not self._is_lasting:
            return SessionRequest(NO_SESSION, wanted)
        session = self._id, self._epoch
        known, self._known = self._known, {each.partition: each for each in wanted}
        if len(self._known) != len(wanted):
            violated("a partition is named twice in one request")
        if self._epoch == 0:
            self.begun += 1
            return SessionRequest(session, wanted)
        changed = [each for each in wanted if known.get(each.partition) != each]
        # Sorted, so that partitions of the same topic are adjacent.
        forgotten = sorted(known.keys() - self._known.keys())
        return SessionRequest(session, changed, forgotten)

    def read(self, frame: memoryview, topic: str | None = None) -> list[Fetched]:
        """The partitions in a response; none if the broker lost the session, and the next request starts a new one.

        Raises any other error code of the response, and `BrokenAnswerError`; then too the next request starts a new
        session. `topic` is the name of the one topic that was asked for by id.
        """
        if not self._is_lasting:
            return read_session_answer(frame, topic)[1]
        was_first = self._epoch == 0
        try:
            session_id, answer = read_session_answer(frame)
            self._check([each.partition for each in answer])
        except RetriableAnswerError as error:
            self.on_lost()
            if error.error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = _NONE
            if was_first or error.error_code not in _SESSION_CODES:
                raise
            return []
        except BaseException:
            self.on_lost()
            raise
        if session_id == _NONE or (session_id != self._id and not was_first):
            # The broker has no room for a session, or ended it. The response is valid; the next request names all.
            self.on_lost()
            self._id = _NONE
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return answer

    def on_lost(self) -> None:
        """The last request got no usable response, so it is unknown what the broker remembers."""
        self._epoch = 0
        self._known = {}

    def _check(self, answered: Collection[TopicPartition]) -> None:
        """Raises `BrokenAnswerError` if the response has a partition that was not asked for."""
        strange = [partition for partition in answered if partition not in self._known]
        if strange:
            raise BrokenAnswerError(f"the broker returned {strange[0]}, which was not requested")
