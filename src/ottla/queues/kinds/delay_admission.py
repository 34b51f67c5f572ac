"""What the gate of `<topic>.delayed` accepts: when each record is due, and whether it cancels or replaces others.

Due is what the header `ottla.deliver-at-ms` or `ottla.delay-ms` says, or the topic's fixed delay; a time in the past
means at once. `ottla.delay.id` names a record, so that a later one can cancel it (`ottla.delay.cancel`) or take its
place (`ottla.delay.replace`). A record that cancels is not parked and has no due time. Instructions about a
record by its offset are in `by_offset.py`. Pure.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.model.ids import TimestampMs
from ottla.model.queue_names import (
    CANCEL,
    DELAY_CANCEL,
    DELAY_ID,
    DELAY_MS,
    DELAY_REPLACE,
    DELIVER_AT_MS,
    DUE_MS,
    RELEASE,
)
from ottla.queues.gate import Admission, Instruction, number_fault, quoted, refusal
from ottla.queues.kinds.by_offset import instruction, instruction_fault
from ottla.records.header_edit import ABSENT, HeaderNames, find_headers, find_numbers
from ottla.records.header_stamp import Stamp

ID_BYTES_MAX: Final = 255
"""Of `ottla.delay.id` and `ottla.delay.cancel`: the broker keeps cancelled ids in memory."""

_TIMES: Final = HeaderNames(DELIVER_AT_MS, DELAY_MS)
_IDS: Final = HeaderNames(DELAY_ID, DELAY_CANCEL, DELAY_REPLACE, RELEASE, CANCEL)
_ALL: Final = HeaderNames(*_TIMES.names, *_IDS.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayAdmission:
    """The rules of one topic."""

    delay_ms: int
    """For records without a header that says when they are due."""
    delay_max_ms: int
    check_cancel: Callable[[bytes], None] | None = None
    """Raises an OttlaError if this id may not be cancelled or replaced now; None if all may be."""

    def admit(self, payload: memoryview, count: int, now_ms: TimestampMs) -> Admission:
        """Stamps each record with the time when it is due. Raises `InvalidRecordError`; see `ottla.queues.gate`.

        Raises what `check_cancel` raises.
        """
        times, delays = find_numbers(payload, count, _TIMES)
        named = find_headers(payload, count, _IDS)
        delay_max, latest, default = self.delay_max_ms, now_ms + self.delay_max_ms, now_ms + self.delay_ms
        due = array("q", bytes(8 * count))
        invalid = False
        for index, (at_ms, delay) in enumerate(zip(times, delays, strict=True)):
            if at_ms == ABSENT:
                if 0 <= delay <= delay_max:
                    due[index] = now_ms + delay
                elif delay == ABSENT:
                    due[index] = default
                else:
                    invalid = True
            elif delay == ABSENT and 0 <= at_ms <= latest:
                due[index] = at_ms if at_ms > now_ms else now_ms
            else:
                invalid = True
        instructions: dict[int, Instruction] = {}
        for index, (id, cancel, replace, release, cancel_at) in named:
            if release is not None or cancel_at is not None:
                told = instruction(release, cancel_at)
                fault = self._fault((None, None, id, cancel, replace, release, cancel_at), now_ms)
                if told is None or fault is not None or times[index] != ABSENT or delays[index] != ABSENT:
                    invalid = True
                else:
                    instructions[index] = told
                    due[index] = now_ms if release is not None else ABSENT
                continue
            if cancel is not None:
                due[index] = ABSENT
                invalid = invalid or times[index] != ABSENT or delays[index] != ABSENT
            invalid = invalid or _id_fault(id, cancel, replace) is not None
        if invalid:
            faults = ((index, self._fault(values, now_ms)) for index, values in find_headers(payload, count, _ALL))
            raise refusal([(index, fault) for index, fault in faults if fault is not None], count)
        if self.check_cancel is not None:
            for _, (id, cancel, replace, _, _) in named:
                cancelled = id if replace == b"true" else cancel
                if cancelled is not None:
                    self.check_cancel(cancelled)
        named_count = sum(len(values) - values.count(None) for _, values in named)
        header_count = 2 * count - times.count(ABSENT) - delays.count(ABSENT) + named_count
        return Admission((Stamp(DUE_MS, due),), instructions=instructions, header_count=header_count)

    def _fault(self, values: tuple[bytes | None, ...], now_ms: int) -> str | None:
        """What is wrong with the headers of one record."""
        at, delay, id, cancel, replace, release, cancel_at = values
        if release is not None or cancel_at is not None:
            return instruction_fault(release, cancel_at, dict(zip(_ALL.names, values[:5], strict=False)))
        if at is not None and delay is not None:
            return f"headers {DELIVER_AT_MS} and {DELAY_MS} contradict each other; set one of them"
        for name, value in ((DELIVER_AT_MS, at), (DELAY_MS, delay)):
            if value is None:
                continue
            if cancel is not None:
                return f"headers {DELAY_CANCEL} and {name} contradict each other; a cancel is not delivered"
            fault = self._time_fault(name, value, now_ms)
            if fault is not None:
                return fault
        return _id_fault(id, cancel, replace)

    def _time_fault(self, name: str, value: bytes, now_ms: int) -> str | None:
        fault = number_fault(name, value)
        if fault is not None:
            return fault
        delay = int(value) if name == DELAY_MS else int(value) - now_ms
        if delay > self.delay_max_ms:
            return f"header {name}: a delay of {delay} ms exceeds ottla.delay.max.ms={self.delay_max_ms}"
        return None


def _id_fault(id: bytes | None, cancel: bytes | None, replace: bytes | None) -> str | None:
    """What is wrong with the headers that name, cancel and replace records."""
    if cancel is not None and (id is not None or replace is not None):
        other = DELAY_ID if id is not None else DELAY_REPLACE
        return f"headers {DELAY_CANCEL} and {other} contradict each other; cancel with a record of its own"
    for name, value in ((DELAY_ID, id), (DELAY_CANCEL, cancel)):
        if value is None:
            continue
        if not 0 < len(value) <= ID_BYTES_MAX:
            return f"header {name}: an id has 1 to {ID_BYTES_MAX} bytes, not {len(value)}"
        try:
            value.decode()
        except UnicodeDecodeError:
            return f"header {name}: {quoted(value)} is not UTF-8 text"
    if replace is not None and replace not in (b"true", b"false"):
        return f"header {DELAY_REPLACE}: {quoted(replace)} is not true or false"
    if replace == b"true" and id is None:
        return f"header {DELAY_REPLACE} needs the header {DELAY_ID}, which names the record to replace"
    return None
