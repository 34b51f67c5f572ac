"""What a share session sends: what waits when it is closed, and which acknowledgements travel with a fetch."""

from uuid import UUID

from ottla.client.share.share_session_state import (
    FINAL_EPOCH,
    Acknowledgements,
    AcknowledgeRequest,
    FetchRequest,
    Settled,
    ShareSessionState,
)
from ottla.client.share.values import AcknowledgeType
from ottla.model.ids import TopicPartition
from ottla.protocol.share_frames import Acknowledged, ShareAnswer, TopicIdPartition

T0 = TopicIdPartition(UUID(int=1), 0)
NAME = TopicPartition("t", 0)
FETCHED = ShareAnswer(0, None, 30_000, [], [])
ACKNOWLEDGED = ShareAnswer(0, None, 30_000, [], [Acknowledged(T0, 0, None)])


def open_session() -> ShareSessionState:
    """One whose first fetch was answered."""
    session = ShareSessionState(broker=1, wanted=frozenset({T0}))
    session.next_request(0.0, wants_records=True)
    session.on_answer(FETCHED, 0.0, 0.0)
    return session


def acknowledged(offset: int, how: AcknowledgeType = AcknowledgeType.ACCEPT) -> Acknowledgements:
    return Acknowledgements(partition=T0, name=NAME, types={offset: how}, deadline=30.0)


def test_what_waits_behind_a_fetch_goes_with_the_last_request() -> None:
    session, given = open_session(), acknowledged(3)
    session.next_request(1.0, wants_records=True)
    assert session.acknowledge(given, session.number) is None
    session.on_answer(FETCHED, 2.0, 2.0)
    assert AcknowledgeRequest(epoch=FINAL_EPOCH, acknowledgements=(given,)) == session.close()
    outcome = session.on_answer(ACKNOWLEDGED, 3.0, 3.0)
    assert (Settled(acknowledgements=given),) == outcome.settled


def test_only_what_renews_no_lock_travels_with_a_fetch() -> None:
    session, given = open_session(), acknowledged(3)
    session.acknowledge(given, session.number)
    fetch = FetchRequest(epoch=1, added=frozenset(), forgotten=frozenset(), acknowledgements=(given,))
    assert fetch == session.next_request(1.0, wants_records=True)
    session.on_answer(FETCHED, 2.0, 2.0)
    renewed = acknowledged(4, AcknowledgeType.RENEW)
    session.acknowledge(renewed, session.number)
    assert AcknowledgeRequest(epoch=2, acknowledgements=(renewed,)) == session.next_request(2.0, wants_records=True)
