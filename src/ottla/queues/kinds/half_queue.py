"""Half messages: a prepared record is delivered when its producer commits it, and never if it rolls it back. Pure.

The life of a half message, named by its `ottla.half.id`:

    open         prepared; when it is due without a decision, a question goes to `<topic>.half-checks`, and the message
                 is due again after an interval
    committed    delivered to the topic at once
    rolled back  dropped
    dead         still open after the last question: a dead letter

A decision is a record of its own. If this partition does not know its id, it is handed on to the next partition, until
one knows it or all were asked. So producers need not send decisions to the partition of the half message, although that
is faster. The first decision counts: the same again changes nothing, another one is a contradiction.

Ids of open half messages are in memory, about as many as `ottla.half.open.max` allows; those of decided ones too, until
their decisions are deleted from the log, and at most `DECIDED_MAX`. What headers may be is checked when a record is
parked (`half_admission.py`).
"""

from array import array
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ottla.model import dead_letters
from ottla.model.dead_letters import Origin
from ottla.model.ids import Offset, TopicPartition
from ottla.model.queue_names import (
    DUE_MS,
    HALF_CHECK_AFTER_MS,
    HALF_CHECKS,
    HALF_HOPS,
    HALF_ID,
    HALF_STATE,
    NO_DECISION,
    REPEATED_ID,
    half_checks_topic,
    half_topic,
)
from ottla.queues.dead_letters import DeadLetterPlace
from ottla.queues.gate import quoted
from ottla.queues.kinds.kind import Ask, Consequence, DeadLetter, Deliver, Drop, Found, Verdict
from ottla.queues.progress_records import Action, Plan, Settled
from ottla.queues.settled_offsets import SettledOffsets
from ottla.records.batch import Batch
from ottla.records.header_edit import HeaderNames, find_headers, find_numbers
from ottla.records.murmur2 import partition_for_key
from ottla.records.payload import read_payload
from ottla.records.record import Headers, Record

PREPARE: Final = b"prepare"
COMMIT: Final = b"commit"
ROLLBACK: Final = b"rollback"

DECIDED_MAX: Final = 100_000
"""How many decided ids are remembered, to recognise contradictions."""

_NUMBERS: Final = HeaderNames(DUE_MS)
_TEXTS: Final = HeaderNames(HALF_ID, HALF_STATE)


class HalfSettings(NamedTuple):
    """What the configs say at the moment."""

    check_interval_ms: int
    check_max: int
    partitions: int
    """Of the topic."""


class Outcome(Enum):
    """How a half message ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    DEAD = "dead, after the last check without a decision"


class Prepared(NamedTuple):
    """A half message."""

    id: bytes
    offset: int


class HalfOutcome(NamedTuple):
    """The producer's decision about the half message with this id."""

    id: bytes
    outcome: Outcome
    offset: int
    is_parked: bool
    """Whether it is handed on if the id is not known here."""


class _Decided(NamedTuple):
    outcome: Outcome
    offset: int
    """Of the decision."""


class HalfQueue:
    """The half messages for one partition of a topic; `dead_letter_place` says where dead letters go."""

    name = "half"
    dropped_headers: Sequence[str] = (DUE_MS, HALF_STATE, HALF_CHECK_AFTER_MS, HALF_CHECKS, HALF_HOPS)
    dropped_from_dead: Sequence[str] = ()

    def __init__(
        self,
        target: TopicPartition,
        dead_letter_place: Callable[[], DeadLetterPlace],
        settings: Callable[[], HalfSettings],
    ) -> None:
        self._target = target
        self._dead_letters = dead_letter_place
        self._settings = settings
        self._deliver = Deliver(target)
        self._questions = TopicPartition(half_checks_topic(target.topic), target.partition)
        self._grew_at = Offset(0)
        self._partitions = 0
        self._open: dict[bytes, int] = {}
        """The offset of each open half message, by id."""
        self._ids: dict[int, bytes] = {}
        """The same by offset."""
        self._asked: dict[int, int] = {}
        """How often the producer was asked about an open half message, by offset; without those never asked about."""
        self._outcomes: dict[int, Outcome] = {}
        """Of half messages that are decided and still owed, by offset."""
        self._repeated: dict[int, int] = {}
        """Half messages whose id was open already, and are dead for that: the offset of the other one."""
        self._found: dict[int, int] = {}
        """Parked decisions whose half message was found here, or earlier: its offset, or their own."""
        self._decided: dict[bytes, _Decided] = {}
        """What is remembered of decided half messages, oldest first."""

    def begin(self, settled: SettledOffsets) -> None:
        """Its verdicts do not depend on what is settled."""

    # What the gate asks

    @property
    def open_count(self) -> int:
        """How many half messages wait for their decision."""
        return len(self._open)

    def is_open(self, id: bytes) -> bool:
        """Whether a half message with this id waits for its decision."""
        return id in self._open

    def is_known(self, id: bytes) -> bool:
        """Whether a half message with this id is open, or was decided lately."""
        return id in self._open or id in self._decided

    # Reading the log

    def read(self, batch: Batch) -> Found:
        """Half messages are parked, and decisions that the gate did not know a half message for."""
        count, base = batch.count, int(batch.base_offset)
        payload = read_payload(batch)
        (stamped,) = find_numbers(payload, count, _NUMBERS)
        instructions: list[Prepared | HalfOutcome] = []
        offsets, due_ms = array("q"), array("q")
        marked = dict(find_headers(payload, count, _TEXTS))
        for at in range(count):
            id, state = marked.get(at, (None, None))
            offset, due = base + at, stamped[at]
            if id is not None and state in _OUTCOMES:
                instructions.append(HalfOutcome(id, _OUTCOMES[state], offset, due >= 0))
                if due < 0:
                    continue
            elif id is not None and state == PREPARE:
                instructions.append(Prepared(id, offset))
            offsets.append(offset)
            due_ms.append(max(due, 0))
        return Found(due_ms, offsets, instructions)

    def apply(self, found: Found) -> Consequence:
        """Opens half messages, and applies decisions: these messages are due at once."""
        due_now: list[int] = []
        contradictions: list[str] = []
        for each in found.instructions:
            if isinstance(each, Prepared):
                other = self._open.setdefault(each.id, each.offset)
                if other == each.offset:
                    self._ids[each.offset] = each.id
                else:
                    self._repeated[each.offset] = other
                    due_now.append(each.offset)
            elif isinstance(each, HalfOutcome):
                offset = self._close(each.id, _Decided(each.outcome, each.offset))
                if offset is not None:
                    self._outcomes[offset] = each.outcome
                    due_now.append(offset)
                    if each.is_parked:
                        self._found[each.offset] = offset
                    continue
                earlier = self._decided.get(each.id)
                if earlier is not None:
                    if each.is_parked:
                        self._found[each.offset] = each.offset
                    if earlier.outcome is not each.outcome:
                        contradictions.append(
                            f"half message {quoted(each.id)} is {earlier.outcome.value}; the decision at offset"
                            f" {each.offset} says {each.outcome.value}"
                        )
        return Consequence(due_now, contradictions)

    def on_progress(self, record: Plan | Settled) -> None:
        """Counts questions, and forgets what was moved or settled."""
        offsets = record.offsets()
        if isinstance(record, Plan) and record.action is Action.ASK:
            checks = int(record.detail)
            self._asked.update((offset, checks) for offset in offsets if offset in self._ids)
            return
        for offset in offsets:
            id = self._ids.get(offset)
            if id is not None:
                # Moved without a decision: a dead letter.
                self._close(id, _Decided(Outcome.DEAD, offset))
            self._outcomes.pop(offset, None)
            self._repeated.pop(offset, None)
            self._found.pop(offset, None)

    def _close(self, id: bytes, decided: _Decided) -> int | None:
        """The half message with this id is not open any more; returns its offset if it was."""
        offset = self._open.pop(id, None)
        if offset is not None:
            del self._ids[offset]
            self._asked.pop(offset, None)
            self._decided.pop(id, None)
            self._decided[id] = decided
            if len(self._decided) > DECIDED_MAX:
                del self._decided[next(iter(self._decided))]
        return offset

    # Verdicts

    def uniform_verdict(self) -> Verdict | None:
        """It depends on the record."""
        return None

    def verdict(self, record: Record, now_ms: int) -> Verdict:
        """What happens to a half message that is due or decided, or to a decision that looks for its half message."""
        offset, values = record.offset, dict(record.headers)
        id, state = values.get(HALF_ID), values.get(HALF_STATE)
        if state in _OUTCOMES:
            verdict = self._decision_verdict(offset, values.get(HALF_HOPS))
            if isinstance(verdict, Drop) and offset not in self._found:
                return verdict._replace(why=f"no partition knows a half message with the id {quoted(id or b'')}")
            return verdict
        if id is None or state != PREPARE:
            return DeadLetter(f"header {HALF_ID} or {HALF_STATE} is missing")
        if offset in self._repeated:
            return DeadLetter(f"{REPEATED_ID}; another one with this {HALF_ID} was waiting for its decision")
        outcome = self._outcomes.get(offset)
        if outcome is Outcome.COMMITTED:
            if offset < self._grew_at and record.key is not None:
                return Deliver(TopicPartition(self._target.topic, partition_for_key(record.key, self._partitions)))
            return self._deliver
        if outcome is Outcome.ROLLED_BACK:
            del self._outcomes[offset]
            return Drop()
        checks, settings = self._asked.get(offset, 0), self._settings()
        if checks >= settings.check_max:
            # A decision from now on is too late: this one is on its way.
            self._close(id, _Decided(Outcome.DEAD, offset))
            return DeadLetter(f"{NO_DECISION} after {checks} checks")
        return Ask(self._questions, str(checks + 1), now_ms + settings.check_interval_ms)

    def _decision_verdict(self, offset: int, hops_text: bytes | None) -> Verdict:
        hops = int(hops_text) if hops_text else 0
        partitions = self._settings().partitions
        if offset in self._found or hops + 1 >= partitions:
            # Noted, so that it is not handed on when the log is read again and its half message is deleted.
            return Drop(is_noted=True)
        return Deliver(TopicPartition(half_topic(self._target.topic), (self._target.partition + 1) % partitions))

    def dead_letter_sink(self) -> TopicPartition:
        """The partition of the dead-letter topic that belongs to this one."""
        return self._dead_letters().sink

    def is_stamping(self, action: Action) -> bool:
        """Questions, dead letters, and decisions that are handed on."""
        return True

    def added_headers(self, action: Action, detail: str, record: Record) -> Headers:
        """How often was asked, why a letter is dead, or what a decision needs to be understood elsewhere."""
        if action is Action.ASK:
            return ((HALF_CHECKS, detail.encode()),)
        if action is Action.DEAD:
            origin = Origin(topic=self._target.topic, partition=self._target.partition)
            letter = dead_letters.DeadLetter(origin=origin, reason=detail)
            return tuple(dead_letters.story_headers(letter, self._dead_letters().headers))
        values = dict(record.headers)
        state = values.get(HALF_STATE)
        if state not in _OUTCOMES:
            return ()
        hops = int(values.get(HALF_HOPS) or 0) + 1
        return ((HALF_STATE, state), (HALF_HOPS, b"%d" % hops), (DUE_MS, values.get(DUE_MS)))

    # Its place in the log

    def on_partitions(self, partitions: int, grew_at: Offset) -> None:
        """Half messages prepared before the topic grew are delivered by their key."""
        self._partitions, self._grew_at = partitions, grew_at

    def needed_from(self) -> int | None:
        """A repeated half message is dead because of an earlier one, and a parked decision is dropped because of it."""
        return min((*self._repeated.values(), *self._found.values()), default=None)

    def on_start(self, start_offset: Offset) -> None:
        """Forgets decisions that are not in the log any more."""
        gone = [id for id, decided in self._decided.items() if decided.offset < start_offset]
        for id in gone:
            del self._decided[id]


_OUTCOMES: Final[dict[bytes | None, Outcome]] = {COMMIT: Outcome.COMMITTED, ROLLBACK: Outcome.ROLLED_BACK}
