"""Judges what the members of a share group were told. Pure.

The rules are those of the simulator (`ottla.sim.checkers.share_*`); here a history is made of the events of programs.
A poll may return what was fetched for a poll before it, so that `since` of an `acquired` event is earlier than the
fetch.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.client.share.values import AcknowledgeType
from ottla.model.ids import TopicPartition
from ottla.sim.checkers.share_delivery_counts import ShareDeliveryCounts
from ottla.sim.checkers.share_finished_stay import ShareFinishedStay
from ottla.sim.checkers.share_nothing_lost import ShareNothingLost
from ottla.sim.checkers.share_one_holder import ShareOneHolder
from ottla.sim.checkers.share_start_offsets import ShareStartOffsets
from ottla.sim.shares.history import Acquisition, ShareHistory, StartOffset
from tests.chaos.checker import Contents, Violation
from tests.chaos.history import Event

GROUP: Final = "sharers"
TOPIC: Final = "plain"
DELIVERIES_MAX: Final = 10
"""The group's limit: so high that faults alone do not reach it."""


def share_violations(events: Sequence[Event], contents: Contents) -> list[Violation]:
    """Everything that is wrong with the share group; `events` by time."""
    shares = history_of(events)
    records = {_partition(at): lines for at, lines in contents.items()}
    found = [Violation("not done", event.error) for event in events if event.what == "undone"]
    for checker in (ShareDeliveryCounts(), ShareFinishedStay(), ShareOneHolder(), ShareStartOffsets()):
        found += [Violation(checker.name, what) for is_right, what in checker.verdicts(shares) if not is_right]
    lost = ShareNothingLost()
    return found + [Violation(lost.name, what) for is_right, what in lost.verdicts(shares, records) if not is_right]


def history_of(events: Iterable[Event]) -> ShareHistory:
    """What members acquired and acknowledged."""
    shares = ShareHistory()
    shares.topic, shares.delivery_count_limit = TOPIC, DELIVERIES_MAX
    asked: dict[tuple[str, str, str], float] = {}
    for event in events:
        match event.what:
            case "acquired":
                for (at, offset, _), count in zip(event.records, event.counts, strict=True):
                    acquisition = Acquisition(event.who, count, event.since, event.t)
                    shares.on_acquired(_partition(at), range(offset, offset + 1), acquisition)
            case "acknowledging":
                asked[event.who, event.at, event.how] = event.t
                shares.on_acknowledging(_partition(event.at), _types(event), event.who, event.t)
            case "acknowledged":
                asked_at = asked[event.who, event.at, event.how]
                shares.on_acknowledged(_partition(event.at), _types(event), event.who, asked_at, event.t)
            case "start":
                told = StartOffset(event.offset, event.since, event.t)
                shares.start_offsets[_partition(event.at)].append(told)
    return shares


def _types(event: Event) -> dict[int, int]:
    return dict.fromkeys(event.offsets, AcknowledgeType[event.how.upper()])


def _partition(at: str) -> TopicPartition:
    topic, _, index = at.rpartition("-")
    return TopicPartition(topic, int(index))
