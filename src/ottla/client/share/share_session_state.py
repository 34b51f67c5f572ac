"""A share session (KIP-932): what one broker knows of one share consumer, and the acknowledgements on their way. Pure.

The broker remembers the partitions that a member fetches, and which records it acquired. A ShareFetch with epoch 0
opens a session; each later ShareFetch or ShareAcknowledge increments the epoch, so only one request is in flight.
Requests name only partitions that are new or are not wanted any more. Acknowledgements travel with the next fetch if
their partitions are still fetched and no lock is renewed, else in a request of their own. Epoch -1 closes the session,
and the broker then releases all records that were not acknowledged.

A broker that lost the session, or whose connection was lost, releases the records of the session too: acknowledgements
that were not answered fail, and the next fetch opens a new session.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.client.errors import answer_error, error_code_of
from ottla.client.share.errors import AcquisitionLockLostError
from ottla.client.share.values import AcknowledgeType
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated
from ottla.protocol.share_frames import (
    AcknowledgementBatch,
    ShareAnswer,
    ShareFetched,
    TopicIdPartition,
    acknowledgement_batches,
)

FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
"""Followed by 1: epoch 0 would open a new session."""

_SESSION_CODES: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
_RETRIED_CODES: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The broker could not store an acknowledgement for now; the records stay acquired. After a change of the leader they
do not."""


@dataclass(slots=True, eq=False, kw_only=True)
class Acknowledgements:
    """Acknowledgements of one partition that go to a broker together. Identified by what it is, not by its content."""

    partition: TopicIdPartition
    name: TopicPartition
    types: dict[int, int] = field(default_factory=dict)
    """Acknowledge types by offset."""
    ranges: list[AcknowledgementBatch] = field(default_factory=list)
    """Ranges of offsets that the consumer itself acknowledges: gaps, and what cannot be read."""
    deadline: float = 0.0
    """Until then a broker that refuses for now is asked again: the last lock times out."""

    @property
    def renews(self) -> bool:
        """Whether a lock is renewed."""
        return AcknowledgeType.RENEW in self.types.values()

    def batches(self) -> list[AcknowledgementBatch]:
        """All of them in the form of the protocol."""
        return [*acknowledgement_batches(self.types), *self.ranges]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Acknowledgements that were answered, or will not be."""

    acknowledgements: Acknowledgements
    error: OttlaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Send ShareFetch: adds and forgets partitions, and carries acknowledgements."""

    epoch: int
    added: frozenset[TopicIdPartition]
    forgotten: frozenset[TopicIdPartition]
    acknowledgements: tuple[Acknowledgements, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeRequest:
    """Send ShareAcknowledge."""

    epoch: int
    acknowledgements: tuple[Acknowledgements, ...]

    @property
    def is_renewal(self) -> bool:
        """Whether a lock is renewed."""
        return any(each.renews for each in self.acknowledgements)


Request = FetchRequest | AcknowledgeRequest


def batches_by_partition(request: Request) -> dict[TopicIdPartition, list[AcknowledgementBatch]]:
    """The acknowledgements of a request in the form of the protocol."""
    found: dict[TopicIdPartition, list[AcknowledgementBatch]] = {}
    for each in request.acknowledgements:
        found.setdefault(each.partition, []).extend(each.batches())
    return {partition: sorted(batches) for partition, batches in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a response means."""

    settled: tuple[Settled, ...] = ()
    fetched: tuple[ShareFetched, ...] = ()
    """Partitions with records or an error."""
    error: OttlaError | None = None
    """The error of the whole response; None also if only the session was lost, which heals by itself."""
    must_disconnect: bool = False
    """Whether the connection must be closed: a broker that still has a session releases its records only then. A new
    session with the same member would replace the old one and leave its records locked."""


@dataclass(slots=True, kw_only=True)
class ShareSessionState:
    """The session with one broker. Each request is followed by one of `on_answer` and `on_lost`."""

    broker: int
    wanted: frozenset[TopicIdPartition] = frozenset()
    """The partitions to fetch from this broker; the owner changes it."""
    epoch: int = FIRST_EPOCH
    """Of the next request."""
    number: int = 0
    """How many sessions with this broker were lost: records acquired under a lower number are not held any more."""
    in_flight: Request | None = None
    _known: frozenset[TopicIdPartition] = frozenset()
    """The partitions that the broker knows after the request in flight."""
    _pending: list[Acknowledgements] = field(default_factory=list)
    _fetch_at: float = 0.0
    """When the next fetch may be sent, after an error."""
    _acknowledge_at: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the broker has a session, as far as the consumer knows."""
        return self.epoch != FIRST_EPOCH

    @property
    def has_acknowledgements(self) -> bool:
        """Whether acknowledgements were not answered yet."""
        return bool(self._pending) or (self.in_flight is not None and bool(self.in_flight.acknowledgements))

    @property
    def named(self) -> frozenset[TopicIdPartition]:
        """The partitions that a response may have."""
        return self.wanted | self._known

    def acknowledge(self, given: Acknowledgements, number: int) -> Settled | None:
        """Queues acknowledgements of records that were acquired in the session `number`; returns why they cannot be
        sent, if they cannot."""
        if number != self.number or not self.is_open:
            return Settled(acknowledgements=given, error=_session_lost(given.name))
        self._pending.append(given)
        return None

    # What to send

    def next_request(self, now: float, *, wants_records: bool) -> Request | None:
        """The next request; None if there is nothing to send, or one is in flight."""
        if self.in_flight is not None:
            return None
        pending = tuple(self._pending) if self._acknowledge_at <= now else ()
        fetches = wants_records and bool(self.wanted) and self._fetch_at <= now
        fits = all(each.partition in self.wanted and not each.renews for each in pending)
        if pending and not (fetches and fits):
            return self._sent(AcknowledgeRequest(epoch=self.epoch, acknowledgements=pending))
        if not fetches:
            return None
        known, self._known = self._known, self.wanted
        return self._sent(
            FetchRequest(
                epoch=self.epoch,
                added=self.wanted - known,
                forgotten=known - self.wanted,
                acknowledgements=pending,
            )
        )

    def close(self) -> AcknowledgeRequest | None:
        """The last request, with what is left to acknowledge; None without a session. Not while one is in flight."""
        if self.in_flight is not None:
            violated(f"the session with broker {self.broker} is closed while a request is in flight")
        if not self.is_open:
            return None
        request = AcknowledgeRequest(epoch=FINAL_EPOCH, acknowledgements=tuple(self._pending))
        self._sent(request)
        return request

    def next_deadline(self, now: float) -> float | None:
        """When a request that waits after an error may be sent."""
        waiting = [self._fetch_at] if self.wanted else []
        if self._pending:
            waiting.append(self._acknowledge_at)
        return min((each for each in waiting if each > now), default=None)

    def _sent(self, request: Request) -> Request:
        self.in_flight = request
        if request.acknowledgements:
            self._pending = []
        return request

    # What came of it

    def on_answer(self, answer: ShareAnswer, now: float, retry_at: float) -> Outcome:
        """The response to the request in flight."""
        request, self.in_flight = self.in_flight, None
        if request is None:
            violated(f"broker {self.broker} answered a request that was not sent")
        code = error_code_of(answer.error_code)
        if code in _SESSION_CODES:
            lost = self._lose()
            error = answer_error(answer.error_code, f"the share session with broker {self.broker}")
            self._fetch_at = retry_at
            return Outcome(settled=(*_failed(request.acknowledgements, error), *lost), must_disconnect=True)
        if code is not ErrorCode.NONE:
            return self._refused(request, answer, now, retry_at)
        is_closed = request.epoch == FINAL_EPOCH
        self.epoch = FIRST_EPOCH if is_closed else (self.epoch % EPOCH_MAX) + 1
        results: Mapping[TopicIdPartition, tuple[int, str | None]] = {
            **{each.partition: (each.error_code, each.error_message) for each in answer.acknowledged},
            **{
                each.partition: (each.acknowledge_error_code, each.acknowledge_error_message) for each in answer.fetched
            },
        }
        settled = [
            each
            for acknowledgements in request.acknowledgements
            if (each := self._settle(acknowledgements, results, now, retry_at)) is not None
        ]
        if is_closed:
            settled += self._lose()
        if any(each.error_code for each in answer.fetched):
            self._fetch_at = retry_at
        fetched = tuple(each for each in answer.fetched if each.error_code or each.acquired)
        return Outcome(settled=tuple(settled), fetched=fetched)

    def on_lost(self, error: OttlaError, retry_at: float) -> Outcome:
        """The request in flight got no response: whether it was carried out is not known."""
        request, self.in_flight = self.in_flight, None
        self._fetch_at = retry_at
        sent = request.acknowledgements if request is not None else ()
        return Outcome(settled=(*_failed(sent, error), *self._lose()))

    def _refused(self, request: Request, answer: ShareAnswer, now: float, retry_at: float) -> Outcome:
        """An error of the whole response that is not about the session."""
        self._fetch_at = retry_at
        error = answer_error(answer.error_code, f"broker {self.broker}", answer.error_message)
        if request.epoch == FIRST_EPOCH or request.epoch == FINAL_EPOCH:
            return Outcome(settled=(*_failed(request.acknowledgements, error), *self._lose()), error=error)
        self.epoch = (self.epoch % EPOCH_MAX) + 1
        # Whether the partitions were added is not known: they are named again in a new session.
        results = {each.partition: (answer.error_code, answer.error_message) for each in request.acknowledgements}
        settled = [self._settle(each, results, now, retry_at) for each in request.acknowledgements]
        if isinstance(request, FetchRequest) and (request.added or request.forgotten):
            return Outcome(settled=(*(each for each in settled if each is not None), *self._lose()), error=error)
        return Outcome(settled=tuple(each for each in settled if each is not None), error=error)

    def _settle(
        self,
        acknowledgements: Acknowledgements,
        results: Mapping[TopicIdPartition, tuple[int, str | None]],
        now: float,
        retry_at: float,
    ) -> Settled | None:
        """What came of acknowledgements; None if they are sent again."""
        what = f"acknowledgement of {len(acknowledgements.types)} records of {acknowledgements.name}"
        code, message = results.get(
            acknowledgements.partition, (int(ErrorCode.UNKNOWN_SERVER_ERROR), "the broker did not answer it")
        )
        if not code:
            return Settled(acknowledgements=acknowledgements)
        if error_code_of(code) in _RETRIED_CODES and retry_at < acknowledgements.deadline and self.is_open:
            self._pending.append(acknowledgements)
            self._acknowledge_at = retry_at
            return None
        return Settled(acknowledgements=acknowledgements, error=answer_error(code, what, message))

    def _lose(self) -> list[Settled]:
        """The broker has no session, and released its records; returns what was not sent yet."""
        self.epoch, self._known = FIRST_EPOCH, frozenset()
        self.number += 1
        pending, self._pending = self._pending, []
        return [Settled(acknowledgements=each, error=_session_lost(each.name)) for each in pending]

    def check(self) -> None:
        """Raises `InvariantViolation` if epoch, partitions and acknowledgements do not fit each other."""
        if not FIRST_EPOCH <= self.epoch <= EPOCH_MAX:
            violated(f"the epoch is {self.epoch}")
        if self.epoch == FIRST_EPOCH and self._pending:
            violated("acknowledgements wait, and there is no session")
        if self.epoch == FIRST_EPOCH and self.in_flight is None and self._known:
            violated("there is no session, and the broker is believed to know partitions")
        sent = [] if self.in_flight is None else self.in_flight.acknowledgements
        if any(each is pending for each in sent for pending in self._pending):
            violated("acknowledgements are in flight and wait to be sent")


def _failed(acknowledgements: Iterable[Acknowledgements], error: OttlaError) -> Collection[Settled]:
    return [Settled(acknowledgements=each, error=error) for each in acknowledgements]


def _session_lost(partition: TopicPartition) -> AcquisitionLockLostError:
    return AcquisitionLockLostError(
        f"records of {partition} cannot be acknowledged: the share session in which they were acquired is lost; the"
        " group delivers them again",
        ErrorCode.SHARE_SESSION_NOT_FOUND,
    )
