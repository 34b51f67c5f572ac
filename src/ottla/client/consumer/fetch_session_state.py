"""What a broker remembers of a consumer's fetches (KIP-227), so that a request names only what has changed. Pure.

A session is begun by a request for everything, with epoch 0. Each later one counts the epoch up, and tells only which
partitions are new, which are asked for elsewhere, and which are not wanted any more; the answer leaves out those of
which there is nothing to say. Whatever goes wrong, the next request names everything and begins anew. One session
belongs to one connection's requests, which follow one another; frames are `fetch_frames.py`'s.
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
"""After it comes 1; 0 would begin anew."""
_NONE: Final = 0
_SESSION_CODES: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class SessionRequest(NamedTuple):
    """What a request says: the session and its epoch, what it names, and what the broker is to forget."""

    session: tuple[int, int]
    wanted: Sequence[Wanted]
    forgotten: Sequence[TopicPartition] = ()


class FetchSessionState:
    """See the module's docstring. `ask`, then one of `read` and `on_lost`, and so on."""

    def __init__(self, *, is_lasting: bool = True) -> None:
        self._is_lasting = is_lasting
        """Whether the broker is asked to remember anything; if not, each request stands alone."""
        self._id = _NONE
        self._epoch = 0
        """Of the next request; 0 begins a session, and ends the one of `_id` if there is one."""
        self._known: dict[TopicPartition, Wanted] = {}
        """What the broker remembers once it has the last request."""
        self.begun = 0
        """How many requests named everything."""

    def ask(self, wanted: Sequence[Wanted]) -> SessionRequest:
        """The request that has exactly these partitions read. Those of one topic must be neighbours."""
        if not self._is_lasting:
            return SessionRequest(NO_SESSION, wanted)
        session = self._id, self._epoch
        known, self._known = self._known, {each.partition: each for each in wanted}
        if len(self._known) != len(wanted):
            violated("a partition is asked for twice in one request")
        if self._epoch == 0:
            self.begun += 1
            return SessionRequest(session, wanted)
        changed = [each for each in wanted if known.get(each.partition) != each]
        # Sorted, so that those of one topic are neighbours.
        forgotten = sorted(known.keys() - self._known.keys())
        return SessionRequest(session, changed, forgotten)

    def read(self, frame: memoryview) -> list[Fetched]:
        """What came; nothing if the broker has forgotten the session, and everything is to be asked for again.

        Raises what else the broker says, and `BrokenAnswerError`; the next request then begins anew.
        """
        if not self._is_lasting:
            return read_session_answer(frame)[1]
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
            # It has no room for a session, or ended it: what it answered counts, and the next request names all.
            self.on_lost()
            self._id = _NONE
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return answer

    def on_lost(self) -> None:
        """The last request has no answer that can be used: nobody knows what the broker remembers."""
        self._epoch = 0
        self._known = {}

    def _check(self, answered: Collection[TopicPartition]) -> None:
        """A broker speaks only of what it was asked about."""
        strange = [partition for partition in answered if partition not in self._known]
        if strange:
            raise BrokenAnswerError(f"the broker answered for {strange[0]}, which it was not asked about")
