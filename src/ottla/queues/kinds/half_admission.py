"""What the gate of `<topic>.half` accepts: half messages, and the decisions about them.

Every record has an `ottla.half.id` and an `ottla.half.state`. A half message (`prepare`) is due when its producer will
be asked for the decision. An id that is open is refused, and so are half messages beyond a limit. A decision (`commit`,
`rollback`) whose id is not known in this partition is due at once: it is handed on to the other partitions
(`half_queue.py`). Pure.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.metadata.configs.topic_configs import DELAY_MS_MAX
from ottla.model.errors import OpenHalfMessagesError
from ottla.model.ids import TimestampMs
from ottla.model.queue_names import DUE_MS, HALF_CHECK_AFTER_MS, HALF_HOPS, HALF_ID, HALF_STATE
from ottla.queues.gate import Admission, quoted, refusal
from ottla.queues.kinds.half_queue import COMMIT, PREPARE, ROLLBACK
from ottla.records.header_edit import ABSENT, HeaderNames, find_headers, find_numbers
from ottla.records.header_stamp import Stamp
from ottla.records.record import Headers

ID_BYTES_MAX: Final = 255
"""The broker keeps the ids of open half messages in memory."""

_TEXTS: Final = HeaderNames(HALF_ID, HALF_STATE, HALF_CHECK_AFTER_MS, HALF_HOPS)
_NUMBERS: Final = HeaderNames(HALF_CHECK_AFTER_MS, HALF_HOPS)
_STATES: Final = (PREPARE, COMMIT, ROLLBACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfAdmission:
    """The rules of one topic, for one batch of a partition."""

    check_after_ms: int
    """For half messages without a header that says when to ask."""
    is_enabled: bool
    """Otherwise only decisions are accepted, about half messages that were prepared before."""
    open_max: int
    """How many half messages of a partition may wait for their decision. The batch that reaches the limit may exceed
    it, and those of open transactions are not counted."""
    open_count: int
    """How many wait now."""
    is_open: Callable[[bytes], bool]
    """Whether a half message with this id waits for its decision in this partition."""
    is_known: Callable[[bytes], bool]
    """Whether this partition has, or had lately, a half message with this id."""
    is_handed_on: bool = False
    """Whether another partition hands decisions on, so that their count of partitions stays. A client's is removed."""

    def admit(self, payload: memoryview, count: int, now_ms: TimestampMs) -> Admission:
        """Stamps each record with the time when it is due. Raises `InvalidRecordError`; see `ottla.queues.gate`.

        Raises `OpenHalfMessagesError` if too many half messages are open, unless the batch decides about as many as it
        opens: decisions are what makes room.
        """
        after, hops = find_numbers(payload, count, _NUMBERS)
        due = array("q", [ABSENT]) * count
        faults: list[tuple[int, str]] = []
        texts = find_headers(payload, count, _TEXTS)
        changed: dict[bytes, bool] = {}
        """The ids in this batch so far, and whether they are open behind it."""
        added: dict[int, Headers] = {}
        opened = 0
        for index, (id, state, after_text, hops_text) in texts:
            fault = self._fault(id, state, after_text, after[index])
            if self.is_handed_on and hops[index] >= 0:
                added[index] = ((HALF_HOPS, hops_text),)
            if fault is None and state == PREPARE and id is not None and changed.get(id, self.is_open(id)):
                fault = f"header {HALF_ID}: {quoted(id)} is the id of a half message that waits for its decision"
            if fault is not None or id is None:
                faults.append((index, fault or ""))
            elif state == PREPARE:
                changed[id] = True
                opened += 1
                due[index] = now_ms + (self.check_after_ms if after[index] == ABSENT else after[index])
            else:
                if id not in changed and not self.is_known(id):
                    due[index] = now_ms
                opened -= changed.get(id, self.is_open(id))
                changed[id] = False
        if len(texts) != count:
            found = {index for index, _ in texts}
            faults += [(index, _missing(HALF_ID)) for index in range(count) if index not in found]
        if faults:
            raise refusal(sorted(faults), count)
        if opened > 0 and self.open_count >= self.open_max:
            raise OpenHalfMessagesError(
                f"{self.open_count} half messages wait for their decision, ottla.half.open.max={self.open_max};"
                " try again when some are decided"
            )
        header_count = sum(len(values) - values.count(None) for _, values in texts)
        return Admission((Stamp(DUE_MS, due),), added, header_count=header_count)

    def _fault(self, id: bytes | None, state: bytes | None, after_text: bytes | None, after_ms: int) -> str | None:
        """What is wrong with the headers of one record."""
        if id is None:
            return _missing(HALF_ID)
        if not 0 < len(id) <= ID_BYTES_MAX:
            return f"header {HALF_ID}: an id has 1 to {ID_BYTES_MAX} bytes, not {len(id)}"
        try:
            id.decode()
        except UnicodeDecodeError:
            return f"header {HALF_ID}: {quoted(id)} is not UTF-8 text"
        if state is None:
            return _missing(HALF_STATE)
        if state not in _STATES:
            return f"header {HALF_STATE}: {quoted(state)} is not prepare, commit or rollback"
        if state == PREPARE and not self.is_enabled:
            return f"header {HALF_STATE}: half messages are disabled in the configs of the topic; only decisions count"
        if after_text is None:
            return None
        if state != PREPARE:
            return f"header {HALF_CHECK_AFTER_MS} contradicts {HALF_STATE}={state.decode()}; it belongs to prepare"
        if not 0 <= after_ms <= DELAY_MS_MAX:
            return (
                f"header {HALF_CHECK_AFTER_MS}: {quoted(after_text)} is not a number of milliseconds from 0 to"
                f" {DELAY_MS_MAX}, as decimal digits"
            )
        return None


def _missing(name: str) -> str:
    return f"header {name} is missing; a half message needs {HALF_ID}, and {HALF_STATE}=prepare, commit or rollback"
