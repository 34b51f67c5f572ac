"""Judges a history: what clients were told against what is in the logs at the end, in the manner of Jepsen.

Pure. Each function below is one promise and answers what breaks it. `contents` is everything in the topics after all
was healed, read committed. What a history looks like is `history.py`'s; how soon writing went on, `recovery.py`'s.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.history import Event

Contents = Mapping[str, Sequence[tuple[int, str]]]
"""Of each partition (offset, value), by offset."""
COPIED: Final = " copied by "
"""Between what was copied and by whom."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise."""

    promise: str
    text: str


def check(events: Sequence[Event], contents: Contents) -> list[Violation]:
    """Everything that is wrong; `events` by time."""
    return [Violation(name, text) for name, promise in PROMISES.items() for text in promise(events, contents)]


def _inconsistent_offsets(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """One offset is one record, whoever is told of it, whenever."""
    known = {(at, offset): (value, "the end") for at, lines in contents.items() for offset, value in lines}
    for event in events:
        told = event.records if event.what == "read" else [(event.at, event.offset, event.value)]
        if event.what not in ("acked", "read") or (event.what == "acked" and event.offset < 0):
            continue
        for at, offset, value in told:
            first, whose = known.setdefault((at, offset), (value, f"{event.who} at {event.t:.3f}"))
            if first != value:
                yield f"{at} offset {offset} is {value} to {event.who} at {event.t:.3f}, and {first} to {whose}"


def _lost_writes(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """What was acknowledged is there, at its offset, if its transaction was not aborted."""
    there = {(at, value): offset for at, lines in contents.items() for offset, value in lines}
    ends = _endings(events)
    belongs = {event.value: event.transaction for event in events if event.what == "sent"}
    for event in events:
        transaction = belongs.get(event.value)
        is_promised = transaction is None or ends.get(transaction) == "committed"
        if event.what != "acked" or not is_promised:
            continue
        offset = there.get((event.at, event.value))
        if offset is None or event.offset not in (offset, -1):
            yield f"{event.value} was acknowledged to {event.who} at {event.t:.3f} as {event.at} offset {event.offset}"


def _duplicates(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """What was sent once is there once."""
    for at, lines in contents.items():
        seen: dict[str, int] = {}
        for offset, value in lines:
            if value in seen:
                yield f"{value} is in {at} at offset {seen[value]} and {offset}"
            seen[value] = offset


def _invented(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """What is there was sent, and to there."""
    sent = {(event.at, event.value) for event in events if event.what == "sent"}
    for at, lines in contents.items():
        for offset, value in lines:
            if (at, value) not in sent:
                yield f"{value} is in {at} at offset {offset}, and nobody sent it there"


def _reordered(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """A producer's records of one partition are in the order in which they were sent."""
    order: dict[str, tuple[str, int]] = {}
    for place, event in enumerate(events):
        if event.what == "sent":
            order[event.value] = (event.who, place)
    for at, lines in contents.items():
        last: dict[str, tuple[int, str]] = {}
        for _, value in lines:
            who, place = order.get(value, ("", -1))
            if who and place < last.get(who, (-1, ""))[0]:
                yield f"in {at}, {value} follows {last[who][1]}, which {who} sent later"
            elif who:
                last[who] = (place, value)


def _aborted_reads(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """Nobody who reads committed records sees one of an aborted transaction."""
    ends = _endings(events)
    aborted = {
        event.value: event.transaction
        for event in events
        if event.what == "sent" and event.transaction and ends.get(event.transaction) == "aborted"
    }
    for event in events:
        for at, offset, value in event.records:
            if value in aborted:
                yield f"{event.who} read {value} in {at} at {offset}, of {aborted[value]}, which was aborted"
    for at, lines in contents.items():
        for offset, value in lines:
            if value in aborted:
                yield f"{value} is in {at} at {offset}, of {aborted[value]}, which was aborted"


def _torn_transactions(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """Of a committed transaction everything is there; of one with an unknown end, everything or nothing."""
    ends = _endings(events)
    there = {value for lines in contents.values() for _, value in lines}
    members: dict[str, list[str]] = defaultdict(list)
    given_up = {event.value for event in events if event.what == "failed"}
    for event in events:
        if event.what == "sent" and event.transaction is not None:
            members[event.transaction].append(event.value)
    for transaction, values in members.items():
        missing = [value for value in values if value not in there]
        ended = ends.get(transaction, "unsure")
        if ended == "committed" and missing:
            yield f"{transaction} was committed, and lacks {missing} of {values}"
        if ended == "unsure" and missing and len(missing) < len(values) and not given_up & set(missing):
            yield f"{transaction} is there in part: it lacks {missing} of {values}"


def _non_monotonic_polls(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """From one poll to the next a reader's offsets go up, and nothing is left out."""
    offsets = {at: [offset for offset, _ in lines] for at, lines in contents.items()}
    places = {at: {offset: place for place, offset in enumerate(found)} for at, found in offsets.items()}
    last: dict[tuple[str, str], int] = {}
    for event in events:
        if event.what == "began":
            last.pop((event.who, event.at), None)
        for at, offset, _ in event.records:
            before = last.get((event.who, at))
            last[event.who, at] = offset
            if before is None:
                continue
            if offset <= before:
                yield f"{event.who} read {at} offset {offset} after {before} at {event.t:.3f}"
                continue
            here, there = places.get(at, {}).get(before), places.get(at, {}).get(offset)
            if here is not None and there is not None and there != here + 1:
                skipped = offsets[at][here + 1 : there]
                yield f"{event.who} read {at} offset {offset} after {before} at {event.t:.3f}, and left out {skipped}"


def _stale_ends(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """Who asks for the end is told of everything that was acknowledged, or told as the end, before it asked."""
    floors: dict[str, list[tuple[float, int]]] = defaultdict(list)
    transactional = {event.at for event in events if event.what == "sent" and event.transaction is not None}
    for event in events:
        if event.what == "end" and event.at not in transactional:
            known = max((floor for t, floor in floors[event.at] if t < event.since), default=0)
            if event.offset < known:
                yield f"{event.who} was told at {event.t:.3f} that {event.at} ends at {event.offset}, after {known}"
            floors[event.at].append((event.t, event.offset))
        elif event.what == "acked" and (not floors[event.at] or floors[event.at][-1][1] <= event.offset):
            floors[event.at].append((event.t, event.offset + 1))


def _lost_group_offsets(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """A group goes on where it was told that its offset is, or later."""
    saved: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for event in events:
        if event.group is None:
            continue
        if event.what == "saved":
            saved[event.group, event.at].append((event.t, event.offset))
        if event.what == "began":
            known = max((offset for t, offset in saved[event.group, event.at] if t < event.since), default=0)
            if max(event.offset, 0) < known:
                yield f"{event.who} found {event.group} at {event.at} offset {event.offset}, after {known} was saved"


def _unread_by_groups(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """Every record of a partition that a group reads is read by one of its members at least once."""
    read: dict[str, set[tuple[str, int]]] = defaultdict(set)
    partitions: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.group is not None and event.what == "began":
            partitions[event.group].add(event.at)
        if event.group is not None:
            read[event.group].update((at, offset) for at, offset, _ in event.records)
    for group, all_at in partitions.items():
        for at in sorted(all_at):
            missing = [offset for offset, _ in contents.get(at, ()) if (at, offset) not in read[group]]
            if missing:
                yield f"{group} never read {len(missing)} records of {at}, offsets {missing[:5]} and so on"


def _copied_wrongly(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """Who copies and commits offsets in one transaction copies each record once, in order, from the first on."""
    for at, lines in contents.items():
        if not at.startswith("copies-"):
            continue
        copied = [value.partition(COPIED)[0] for _, value in lines]
        wanted = [value for _, value in contents.get(at.replace("copies-", "plain-"), ())][: len(copied)]
        if copied != wanted:
            place = next(
                (n for n, pair in enumerate(zip(copied, wanted, strict=False)) if pair[0] != pair[1]), len(wanted)
            )
            yield f"{at} has {copied[place : place + 3]} as its copies from {place} on, of {wanted[place : place + 3]}"


def _failed_writes(events: Sequence[Event], contents: Contents) -> Iterator[str]:
    """A library that may try for long enough gives no record up."""
    belongs = {event.value: event.transaction for event in events if event.what == "sent"}
    for event in events:
        if event.what == "failed" and belongs.get(event.value) is None:
            yield f"{event.who} gave up {event.value} of {event.at} at {event.t:.3f}: {event.error}"


def _endings(events: Sequence[Event]) -> dict[str, str]:
    return {
        event.transaction: event.what
        for event in events
        if event.transaction is not None and event.what in ("committed", "aborted", "unsure")
    }


PROMISES: Final[Mapping[str, Callable[[Sequence[Event], Contents], Iterator[str]]]] = {
    "inconsistent offsets": _inconsistent_offsets,
    "lost write": _lost_writes,
    "duplicate": _duplicates,
    "invented record": _invented,
    "reordered": _reordered,
    "aborted read": _aborted_reads,
    "torn transaction": _torn_transactions,
    "non-monotonic poll": _non_monotonic_polls,
    "stale end": _stale_ends,
    "lost group offset": _lost_group_offsets,
    "unread by a group": _unread_by_groups,
    "copied wrongly": _copied_wrongly,
    "failed write": _failed_writes,
}
"""All promises by the name of what breaks them."""
