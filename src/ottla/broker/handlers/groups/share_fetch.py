"""ShareFetch and ShareAcknowledge: members of share groups acquire records, and say what became of them.

From the wire to the member's session and the share-partitions, and back. Both APIs take acknowledgements: those of a
ShareFetch are taken before anything is acquired. The rules are in `ottla.coordination.share_partitions`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from kio.schema.share_fetch.v2.request import ShareFetchRequest

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.inline_handlers import Suspended, start_eagerly
from ottla.broker.requests.leader_hints import leader_hint
from ottla.broker.requests.services import Services
from ottla.coordination.groups.share.requests import MEMBER_ID_LENGTH_MAX
from ottla.coordination.share_partitions.share_fetching import ShareFetchWish
from ottla.coordination.share_partitions.share_partition import Delivery, FetchLimits, ShareOutcome
from ottla.coordination.share_partitions.share_partition_state import Acknowledgement, AcknowledgeType, AcquireMode
from ottla.coordination.share_partitions.share_sessions import (
    CLOSING_EPOCH,
    OPENING_EPOCH,
    Place,
    SessionKey,
    SessionRefusedError,
    ShareSession,
)
from ottla.coordination.share_state.records import ShareKey
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError, InvalidRequestError, OttlaError
from ottla.model.ids import BrokerId
from ottla.protocol.share_acknowledgements import ShareAcknowledgement
from ottla.protocol.share_answers import Endpoint, PartAnswer, share_acknowledge_answer, share_fetch_answer
from ottla.security.resources import Operation, ResourceType

_MILLISECOND: Final = timedelta(milliseconds=1)
_RENEWAL_SINCE: Final = 2
_TYPES_WITH_RENEWAL: Final = frozenset(map(int, AcknowledgeType))
_TYPES: Final = _TYPES_WITH_RENEWAL - {int(AcknowledgeType.RENEW)}
_PARTITIONS_MAX: Final = 10_000
"""Of a session."""
_NO_ID: Final = UUID(int=0)
_NO_LEADER: Final = (-1, -1)
_DELIVERED: Final = ShareOutcome()
_LED_ELSEWHERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

Outcomes = dict[Place, ShareOutcome]


class _Refused(Exception):
    """The whole request is refused."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


# ShareFetch


async def share_fetch(services: Services, context: RequestContext, request: ShareFetchRequest) -> list[bytes]:
    """Takes the member's acknowledgements, then acquires records for it; waits if there are none."""
    fetching = services.share_fetching
    is_renewal = context.version >= _RENEWAL_SINCE and request.is_renew_ack
    try:
        key = _checked(context, request.group_id, request.member_id)
        if is_renewal:
            _check_only_renews(request)
        session = _session_of_fetch(services, context, key, request)
    except SessionRefusedError as refusal:
        if refusal.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # A client that is refused asks again at once.
            await services.clock.sleep(max(request.max_wait / _MILLISECOND, 0) / 1000)
        return _fetch_failed(refusal.code, str(refusal))
    except _Refused as refusal:
        return _fetch_failed(refusal.code, str(refusal))
    except OttlaError as error:
        return _fetch_failed(error.code, str(error))
    is_closing = request.share_session_epoch == CLOSING_EPOCH
    is_opening = request.share_session_epoch == OPENING_EPOCH
    acknowledgements = {
        (topic.topic_id or _NO_ID, int(part.partition_index)): part.acknowledgement_batches
        for topic in request.topics
        for part in topic.partitions
        if part.acknowledgement_batches
    }
    told = await _acknowledge(services, context, key, acknowledgements, is_renewal=is_renewal)
    found: dict[Place, Delivery | ShareOutcome] = {}
    if is_closing:
        await fetching.end_session(session)
    elif not is_renewal:
        found = await _fetch(services, context, session, request)
    # As in Kafka, a request that opens a session and wants nothing is answered for no partition.
    is_answered = is_opening and request.max_bytes != 0 and request.max_records != 0
    places = dict.fromkeys((*found, *told, *(session.partitions if is_answered else ())))
    return _fetched(services, context, key.group_id, places, found, told)


def _checked(context: RequestContext, group_id: str | None, member_id: str | None) -> SessionKey:
    if group_id is None:
        raise InvalidRequestError("Invalid group id in the request.")
    context.check(Operation.READ, ResourceType.GROUP, group_id)
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise InvalidRequestError("Invalid member id in the request.")
    return SessionKey(group_id, member_id)


def _check_only_renews(request: ShareFetchRequest) -> None:
    """A request that renews locks fetches nothing, so that its response is not late."""
    wrong = [
        name
        for name, value in (
            ("maxBytes", request.max_bytes),
            ("minBytes", request.min_bytes),
            ("maxRecords", request.max_records),
            ("maxWaitMs", request.max_wait // _MILLISECOND),
        )
        if value != 0
    ]
    if wrong:
        raise InvalidRequestError(f"{', '.join(wrong)} must be set to 0, if isRenewAck is true.")


def _session_of_fetch(
    services: Services, context: RequestContext, key: SessionKey, request: ShareFetchRequest
) -> ShareSession:
    sessions, owner = services.share_fetching.sessions, context.connection.principal
    places = [
        (topic.topic_id or _NO_ID, int(part.partition_index)) for topic in request.topics for part in topic.partitions
    ]
    if request.share_session_epoch == OPENING_EPOCH:
        if any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions):
            raise InvalidRequestError("The request that opens a share session cannot acknowledge records.")
        if len(places) > _PARTITIONS_MAX:
            raise InvalidRequestError(f"A share session has {_PARTITIONS_MAX} partitions at most.")
        sessions_max = services.config.values["group.share.max.share.sessions"]
        return sessions.open(
            key,
            (context.connection.listener, context.connection.address),
            owner,
            places,
            sessions_max if isinstance(sessions_max, int) else 0,
        )[0]
    session = sessions.proceed(key, owner, request.share_session_epoch)
    if request.share_session_epoch == CLOSING_EPOCH:
        return session
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            session.partitions.pop((topic.topic_id or _NO_ID, int(index)), None)
    forgotten = {
        (topic.topic_id or _NO_ID, int(index)) for topic in request.forgotten_topics_data for index in topic.partitions
    }
    session.partitions.update(dict.fromkeys(place for place in places if place not in forgotten))
    if len(session.partitions) > _PARTITIONS_MAX:
        sessions.end(session)
        raise InvalidRequestError(f"A share session has {_PARTITIONS_MAX} partitions at most.")
    return session


async def _fetch(
    services: Services, context: RequestContext, session: ShareSession, request: ShareFetchRequest
) -> dict[Place, Delivery | ShareOutcome]:
    found: dict[Place, Delivery | ShareOutcome] = {}
    wanted = []
    for place in session.rotated():
        refusal = _refusal(services, context, place)
        if refusal is None:
            wanted.append(place)
        else:
            found[place] = refusal
    max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
    if not wanted or request.max_records <= 0 or max_bytes <= 0:
        return found
    is_limited = int(request.share_acquire_mode) == AcquireMode.RECORD_LIMIT.value
    limits = FetchLimits(
        max_bytes=max_bytes,
        max_records=request.max_records,
        batch_size=request.batch_size,
        mode=AcquireMode.RECORD_LIMIT if is_limited else AcquireMode.BATCH_OPTIMIZED,
    )
    wish = ShareFetchWish(
        limits=limits,
        min_bytes=min(request.min_bytes, max_bytes),
        # A partition that cannot be fetched is told at once.
        max_wait_ms=0 if found else max(request.max_wait // _MILLISECOND, 0),
    )
    return {**found, **await services.share_fetching.fetch(session, wanted, wish)}


def _refusal(services: Services, context: RequestContext, place: Place) -> ShareOutcome | None:
    """Why a partition cannot be used on any broker; None if it can."""
    topic = services.image.topics_by_id.get(place[0])
    if topic is None:
        return ShareOutcome(ErrorCode.UNKNOWN_TOPIC_ID, "This broker does not know the topic id.")
    try:
        context.check(Operation.READ, ResourceType.TOPIC, topic.name)
    except DeniedError as error:
        return ShareOutcome(error.code, str(error))
    if not 0 <= place[1] < len(topic.partitions):
        return ShareOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic does not have this partition.")
    return None


def _fetched(
    services: Services,
    context: RequestContext,
    group_id: str,
    places: Iterable[Place],
    found: Mapping[Place, Delivery | ShareOutcome],
    told: Outcomes,
) -> list[bytes]:
    parts: dict[UUID, list[PartAnswer]] = {}
    leaders: dict[BrokerId, None] = {}
    for place in places:
        what = found.get(place, _DELIVERED)
        outcome, delivery = (_DELIVERED, what) if isinstance(what, Delivery) else (what, Delivery())
        acknowledgement = told.get(place, _DELIVERED)
        leader, epoch = _leader(services, place, outcome, acknowledgement, leaders)
        parts.setdefault(place[0], []).append(
            PartAnswer(
                place[1],
                outcome.error,
                _message(outcome),
                leader,
                epoch,
                acknowledgement.error,
                _message(acknowledgement),
                delivery.records,
                delivery.acquired,
            )
        )
    lock_timeout_ms = _lock_duration_ms(services, group_id)
    endpoints = _endpoints(services, context, leaders)
    return share_fetch_answer(ErrorCode.NONE, None, lock_timeout_ms, list(parts.items()), endpoints)


def _fetch_failed(error: ErrorCode, why: str) -> list[bytes]:
    return share_fetch_answer(error, why, 0, (), ())


# ShareAcknowledge


async def share_acknowledge(services: Services, context: RequestContext, request: ShareAcknowledgement) -> bytes:
    """Takes a member's acknowledgements; with the closing epoch, ends its session too."""
    try:
        key = _checked(context, request.group_id, request.member_id)
        if request.share_session_epoch == OPENING_EPOCH:
            raise SessionRefusedError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "ShareAcknowledge cannot open a share session."
            )
        session = services.share_fetching.sessions.proceed(
            key, context.connection.principal, request.share_session_epoch
        )
    except SessionRefusedError as refusal:
        return _acknowledge_failed(context.version, refusal.code, str(refusal))
    except OttlaError as error:
        return _acknowledge_failed(context.version, error.code, str(error))
    told = await _acknowledge(services, context, key, request.partitions, is_renewal=request.is_renew_ack)
    if request.share_session_epoch == CLOSING_EPOCH:
        await services.share_fetching.end_session(session)
    parts: dict[UUID, list[PartAnswer]] = {}
    leaders: dict[BrokerId, None] = {}
    for place, outcome in told.items():
        leader, epoch = _leader(services, place, outcome, _DELIVERED, leaders)
        parts.setdefault(place[0], []).append(PartAnswer(place[1], outcome.error, _message(outcome), leader, epoch))
    lock_timeout_ms = _lock_duration_ms(services, key.group_id)
    endpoints = _endpoints(services, context, leaders)
    return share_acknowledge_answer(
        context.version, ErrorCode.NONE, None, lock_timeout_ms, list(parts.items()), endpoints
    )


def _acknowledge_failed(version: int, error: ErrorCode, why: str) -> bytes:
    return share_acknowledge_answer(version, error, why, 0, (), ())


# Acknowledgements, of both


async def _acknowledge(
    services: Services,
    context: RequestContext,
    key: SessionKey,
    batches: Mapping[Place, Sequence[Any]],
    *,
    is_renewal: bool,
) -> Outcomes:
    async def one(place: Place, each: Sequence[Any]) -> ShareOutcome:
        try:
            acknowledgements = _acknowledgements(each, context.version, is_renewal=is_renewal)
        except _Refused as refused:
            return ShareOutcome(refused.code, str(refused))
        refusal = _refusal(services, context, place)
        if refusal is not None or not acknowledgements:
            return refusal or ShareOutcome()
        partition = services.share_fetching.partitions.get(ShareKey(key.group_id, *place))
        if partition is None:
            return _not_here(services, place)
        return await partition.acknowledge(key.member_id, acknowledgements)

    # All of them are started before the first is waited for; a task for each would cost more than its work.
    started = [start_eagerly(one(place, each)) for place, each in batches.items()]
    outcomes = [await each if type(each) is Suspended else each for each in started]
    return dict(zip(batches, outcomes, strict=True))


def _not_here(services: Services, place: Place) -> ShareOutcome:
    """Nothing is acquired here: the partition has another leader, or its share-partition was dropped."""
    try:
        services.partitions.find(place[0].bytes, place[1])
    except OttlaError as error:
        return ShareOutcome(error.code, str(error))
    return ShareOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No record of the partition is acquired here.")


def _acknowledgements(batches: Sequence[Any], version: int, *, is_renewal: bool) -> list[Acknowledgement]:
    """Ranges of equal types, ascending."""
    found: list[Acknowledgement] = []
    allowed = _TYPES_WITH_RENEWAL if version >= _RENEWAL_SINCE and is_renewal else _TYPES
    last = -1
    for batch in batches:
        types = batch.acknowledge_types
        count = batch.last_offset - batch.first_offset + 1
        is_valid = count > 0 and batch.first_offset >= last and len(types) in (1, count) and allowed.issuperset(types)
        if not is_valid:
            raise _Refused(ErrorCode.INVALID_REQUEST, "An acknowledgement batch is not valid.")
        last = batch.last_offset
        if len(types) == 1:
            found.append(Acknowledgement(batch.first_offset, batch.last_offset, AcknowledgeType(types[0])))
            continue
        first = batch.first_offset
        for type_, run in groupby(types):
            size = len(list(run))
            found.append(Acknowledgement(first, first + size - 1, AcknowledgeType(type_)))
            first += size
    return found


# Responses


def _lock_duration_ms(services: Services, group_id: str) -> int:
    return services.share_fetching.partitions.settings_of(group_id).lock_duration_ms


def _message(outcome: ShareOutcome) -> str | None:
    return None if outcome.error is ErrorCode.NONE else outcome.message or outcome.error.name


def _leader(
    services: Services, place: Place, outcome: ShareOutcome, other: ShareOutcome, leaders: dict[BrokerId, None]
) -> tuple[int, int]:
    """The leader of a partition that is led elsewhere, for the client to turn to; without an error, zeros as in Kafka.

    With an error, zeros would name broker 0: franz-go turns to the leader that comes with any error.
    """
    errors = {outcome.error, other.error}
    if errors == {ErrorCode.NONE}:
        return 0, 0
    hint = None if errors.isdisjoint(_LED_ELSEWHERE) else leader_hint(services.image, place[0].bytes, place[1])
    if hint is None:
        return _NO_LEADER
    leaders[BrokerId(hint[0])] = None
    return hint


def _endpoints(services: Services, context: RequestContext, leaders: Iterable[BrokerId]) -> list[Endpoint]:
    found = []
    for leader in leaders:
        broker = services.image.brokers.get(leader)
        endpoint = None if broker is None else broker.endpoint(context.listener)
        if broker is not None and endpoint is not None:
            found.append(Endpoint(leader, endpoint.host, endpoint.port, broker.rack))
    return found
