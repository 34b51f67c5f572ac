"""How the records that a share consumer holds become acknowledgements."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from ottla.client.share.acquired_records_state import AcquiredRecordsState, Lock, ToSend
from ottla.client.share.values import AcknowledgeType
from ottla.model.ids import TopicPartition
from ottla.protocol.share_frames import TopicIdPartition

T0 = TopicIdPartition(UUID(int=1), 0)
NAME = TopicPartition("t", 0)
ACCEPT = AcknowledgeType.ACCEPT


def lock(deadline: float) -> Lock:
    return Lock(broker=1, session=0, partition=T0, deadline=deadline)


def types(sending: Sequence[ToSend]) -> list[dict[int, int]]:
    return [each.acknowledgements.types for each in sending]


@pytest.mark.parametrize("deadlines", [(30.0, 20.0), (20.0, 30.0)])
def test_a_broker_is_asked_again_until_the_last_lock_has_timed_out(deadlines: tuple[float, float]) -> None:
    acquired = AcquiredRecordsState()
    for offset, deadline in enumerate(deadlines):
        acquired.deliver_offsets(NAME, lock(deadline), [offset])
    acquired.acknowledge_all(ACCEPT)
    sending, expired = acquired.take(1.0)
    assert ([{0: ACCEPT, 1: ACCEPT}], []) == (types(sending), expired)
    assert [30.0] == [each.acknowledgements.deadline for each in sending]


def test_records_that_the_program_still_works_on_are_left_out() -> None:
    acquired = AcquiredRecordsState()
    acquired.deliver_offsets(NAME, lock(30.0), range(3))
    acquired.acknowledge(NAME, 0, AcknowledgeType.REJECT)
    acquired.acknowledge_all(ACCEPT, left_out=[(NAME, 2)])
    assert [{0: AcknowledgeType.REJECT, 1: ACCEPT}] == types(acquired.take(1.0)[0])
    assert 1 == acquired.undecided
    acquired.acknowledge_all(ACCEPT)
    assert [{2: ACCEPT}] == types(acquired.take(1.0)[0])
