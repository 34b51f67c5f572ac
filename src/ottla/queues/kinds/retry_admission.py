"""What the gate of `<topic>.<group>.retry` accepts: how often each record was handed back, and when it returns.

The broker counts the attempts: it stamps `ottla.retry.attempt`, and a token over it. A record that comes back with
another count than it left with becomes a dead letter, so a client that edits the count by mistake cannot keep a record
in circles. The token's key is the id of the topic: it does not stop an attacker. A record without these headers is
handed back for the first time.

With `ottla.retry.order=key`, a client hands later records of a key back too, unhandled (`ottla.retry.behind`): that is
not an attempt, up to a limit.

The backoff doubles from `ottla.retry.backoff.ms` to `.max.ms` and varies by the jitter. Records that are handed back
too often, or rejected (`ottla.retry.reject`), are due at once, as dead letters: `ottla.dead` says why. Pure.
"""

import hmac
from array import array
from dataclasses import dataclass
from typing import Final

from ottla.model.dead_letters import REASON_CHARACTERS_MAX, parse_origin
from ottla.model.ids import TimestampMs
from ottla.model.queue_names import (
    CANCEL,
    DEAD,
    DUE_MS,
    RELEASE,
    RETRY_ATTEMPT,
    RETRY_BEHIND,
    RETRY_ORIGIN,
    RETRY_REASON,
    RETRY_REJECT,
    RETRY_TOKEN,
)
from ottla.queues.gate import Admission, Instruction, quoted, refusal
from ottla.queues.kinds.by_offset import instruction, instruction_fault
from ottla.records.header_edit import ABSENT, HeaderNames, find_headers, find_numbers
from ottla.records.header_stamp import Stamp
from ottla.records.record import Headers

_COUNTS: Final = HeaderNames(RETRY_ATTEMPT, DUE_MS)
_TEXTS: Final = HeaderNames(RETRY_TOKEN, RETRY_ORIGIN, RETRY_REASON, RETRY_REJECT, RETRY_BEHIND, RELEASE, CANCEL)
_TOKEN_DIGITS: Final = 32
_DOUBLINGS_MAX: Final = 62
_DIGITS_MAX: Final = 9
WAITS_MAX: Final = 1000
"""How often a record may be handed back without an attempt."""
_REASON_BYTES_MAX: Final = 4 * REASON_CHARACTERS_MAX

CHANGED_COUNT: Final = f"the headers {RETRY_ATTEMPT}, {RETRY_TOKEN} and {DUE_MS} were changed by a client"
REJECTED: Final = "rejected by a consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAdmission:
    """The rules of one topic."""

    secret: bytes
    """Of the tokens: the id of the topic."""
    backoff_ms: int
    backoff_max_ms: int
    jitter: float
    """The share of the backoff by which it varies, from 0 to 1."""
    attempts_max: int
    keeps_key_order: bool = False

    def admit(self, payload: memoryview, count: int, now_ms: TimestampMs) -> Admission:
        """Stamps each record with its attempt, a token and when it is due. Raises `InvalidRecordError`."""
        attempts, dues = find_numbers(payload, count, _COUNTS)
        texts = dict(find_headers(payload, count, _TEXTS))
        faults = [(index, fault) for index, each in sorted(texts.items()) if (fault := _fault(each)) is not None]
        if faults:
            raise refusal(faults, count)
        due = array("q", bytes(8 * count))
        counted = array("q", bytes(8 * count))
        added: dict[int, Headers] = {}
        instructions: dict[int, Instruction] = {}
        for index in range(count):
            token, _, reason, reject, behind, release, cancel = texts.get(index, _NO_TEXTS)
            told = instruction(release, cancel)
            if told is not None:
                # Not handed back: it is about another record.
                instructions[index] = told
                due[index], counted[index] = now_ms, -1
                continue
            attempt, waits = self._counted(attempts[index], dues[index], token)
            if attempt is not None:
                if self.keeps_key_order and behind == b"true" and waits < WAITS_MAX:
                    waits += 1
                else:
                    attempt += 1
            dead = self._death(attempt, reason, reject)
            # A changed count is not known any more, and -1 is not stamped.
            counted[index] = -1 if attempt is None else attempt
            if attempt is not None and dead is None:
                due[index] = now_ms + self.backoff(max(attempt, 1), now_ms + index)
                added[index] = ((RETRY_TOKEN, self.token(attempt, due[index], waits)),)
            else:
                due[index] = now_ms
                added[index] = ((DEAD, dead),)
        return Admission((Stamp(DUE_MS, due), Stamp(RETRY_ATTEMPT, counted)), added, instructions)

    def token(self, attempt: int, due_ms: int, waits: int = 0) -> bytes:
        """Proves that the broker counted the attempts and waits of the record that was due then; has the waits."""
        made = hmac.digest(self.secret, b"%d/%d/%d" % (attempt, due_ms, waits), "sha256").hex()[:_TOKEN_DIGITS]
        return f"{waits}.{made}".encode()

    def backoff(self, attempt: int, seed: int) -> int:
        """How long a record is held, in ms. The jitter depends on the seed, so that records do not return together."""
        whole = min(self.backoff_ms << min(attempt - 1, _DOUBLINGS_MAX), self.backoff_max_ms)
        drawn = int.from_bytes(hmac.digest(self.secret, b"jitter/%d/%d" % (attempt, seed), "sha256")[:4], "big")
        return max(0, round(whole * (1 + self.jitter * (2 * drawn / 0xFFFF_FFFF - 1))))

    def _counted(self, attempt: int, due_ms: int, token: bytes | None) -> tuple[int | None, int]:
        """The attempts and waits so far; None if they were changed."""
        if attempt == ABSENT and token is None:
            return 0, 0
        digits = (token or b"").partition(b".")[0]
        waits = int(digits) if digits.isdigit() and len(digits) <= _DIGITS_MAX else 0
        if attempt < 0 or due_ms < 0 or not hmac.compare_digest(token or b"", self.token(attempt, due_ms, waits)):
            return None, 0
        return attempt, waits

    def _death(self, attempt: int | None, reason: bytes | None, reject: bytes | None) -> bytes | None:
        """Why a record becomes a dead letter; None if it returns."""
        if reject is not None:
            return (reject or reason or REJECTED.encode())[:_REASON_BYTES_MAX]
        if attempt is None:
            return CHANGED_COUNT.encode()
        if attempt > self.attempts_max:
            return (reason or b"handed back %d times" % attempt)[:_REASON_BYTES_MAX]
        return None


_NO_TEXTS: Final = (None,) * len(_TEXTS.names)


def _fault(texts: tuple[bytes | None, ...]) -> str | None:
    _, origin, _, _, behind, release, cancel = texts
    if release is not None or cancel is not None:
        return instruction_fault(release, cancel, dict(zip(_TEXTS.names, texts[:5], strict=False)))
    if behind not in (None, b"true", b"false"):
        return f"header {RETRY_BEHIND}: {quoted(behind)} is not true or false"
    if origin is None or parse_origin(origin) is not None:
        return None
    return f"header {RETRY_ORIGIN}: {quoted(origin)} is not topic/partition/offset"
