"""A well-behaved client beside the hostile ones: it writes and reads all the time, and may not notice them.

Every record it writes must be acknowledged, and be there in the end, once, in order. How long its requests take is
compared with how long they take without the others: before these come and after they have gone, whichever is longer,
since other programs may make the machine slower at any time.
"""

import statistics
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.records.batch import scan
from ottla.records.decode import decode_records
from tests.hostile.batches import numbered_batch
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic, produce, unused_name

IDLE_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.002
SLOWER_MAX: Final = 200
"""Nine in ten requests may take so many times as long as the middle one took on an idle broker: far from a stall."""
ROUNDS_MIN: Final = 20
"""With fewer, nine in ten would be all of them, and one pause of the machine would count."""
PATIENCE_SECONDS: Final = 120.0
FETCH_BYTES: Final = 1 << 20

Connect = Callable[[str], RawConnection]
"""Opens a connection to an address, and logs in where that is needed."""


class Bystander:
    """Runs in a thread while the `with` block runs; `check` afterwards says whether it was disturbed."""

    def __init__(self, address: str, *, idle_seconds: float = IDLE_SECONDS, connect: Connect = RawConnection) -> None:
        self.address = address
        self._connect = connect
        self._idle_seconds = idle_seconds
        self.idle: list[float] = []
        self.disturbed: list[float] = []
        self.idle_after: list[float] = []
        self.written = 0
        self._failure: BaseException | None = None
        self._is_over = threading.Event()
        self._times = self.idle
        with connect(address) as connection:
            self.topic_id: UUID = create_topic(connection, unused_name(), 1, retention_ms="-1")
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_over.wait(self._idle_seconds)
        self._wait_rounds(self.idle, ROUNDS_MIN)
        self._times = self.disturbed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            after: list[float] = []
            self._times = after
            self._wait_rounds(after, ROUNDS_MIN)
            # The first of them may have begun while the others were there.
            self.idle_after = after[1:]
        self._is_over.set()
        self._thread.join()

    def wait_disturbed(self) -> None:
        """Returns once it has done enough while the others are there."""
        self._wait_rounds(self.disturbed, ROUNDS_MIN)
        is_served = len(self.disturbed) >= ROUNDS_MIN or not self._thread.is_alive()
        assert is_served, f"the bystander came to {len(self.disturbed)} rounds in {PATIENCE_SECONDS} s"

    def _wait_rounds(self, times: list[float], count: int) -> None:
        wait_until(lambda: len(times) >= count or not self._thread.is_alive(), lambda: f"{count} rounds: {len(times)}")

    def _run(self) -> None:
        try:
            with self._connect(self.address) as connection:
                while not self._is_over.wait(PAUSE_SECONDS):
                    times = self._times
                    began = time.monotonic()
                    assert self.written == produce(connection, self.topic_id, numbered_batch(self.written))
                    self.written += 1
                    assert self.written == self._read_end(connection)
                    times.append(time.monotonic() - began)
        except BaseException as failure:
            self._failure = failure

    def _read_end(self, connection: RawConnection) -> int:
        """Where the log ends, told by the fetch of its last record."""
        values = read_values(connection, self.topic_id, self.written - 1)
        assert [b"record %d" % (self.written - 1)] == values
        return self.written

    def check(self, *, pace: bool = True) -> None:
        """Every record is there, once, in order, and requests took no longer than bounded.

        Without `pace` their time is only told: a single large thing that others wait for is over in one request.
        """
        if self._failure is not None:
            raise AssertionError(f"the bystander was disturbed after {self.written} records") from self._failure
        assert len(self.idle) > 10, "the idle broker answered too few requests to compare with"
        assert self.disturbed or not pace, "the bystander did nothing while the others were there"
        expected = [b"record %d" % number for number in range(self.written)]
        assert expected == read_all(self.address, self.topic_id, self.written, connect=self._connect)
        usual = max(statistics.median(times) for times in (self.idle, self.idle_after) if times)
        slow = slow_end(self.disturbed or self.idle)
        print(f"bystander: {len(self.disturbed)} rounds; idle {usual * 1e3:.2f} ms, {self.story()}")
        assert not pace or slow <= SLOWER_MAX * usual, f"idle {usual * 1e3:.2f} ms, {self.story()}"

    def story(self) -> str:
        """For people: how long its requests took while it was disturbed."""
        times = self.disturbed or self.idle
        return (
            f"disturbed {statistics.median(times) * 1e3:.2f} ms, nine in ten below {slow_end(times) * 1e3:.2f} ms,"
            f" at worst {max(times) * 1e3:.0f} ms"
        )


def slow_end(times: list[float]) -> float:
    """What nine in ten stay below."""
    return sorted(times)[int(len(times) * 0.9)]


def read_values(connection: RawConnection, topic_id: UUID, offset: int, partition: int = 0) -> list[bytes]:
    """The beginnings of the values from an offset on, as far as one response reaches."""
    part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
    values = {"topics": [{"topic_id": topic_id, "partitions": [part]}], "max_bytes": FETCH_BYTES, "session_epoch": -1}
    answer = connection.ask_newest(ApiKey.FETCH, values)
    (found,) = answer.responses[0].partitions
    assert ErrorCode.none is found.error_code
    batches, _, problem = scan(found.records or b"")
    assert problem is None or batches, problem
    records = [record for batch in batches for record in decode_records(batch) if record.offset >= offset]
    assert list(range(offset, offset + len(records))) == [record.offset for record in records]
    return [b" ".join((record.value or b"").split(b" ", 2)[:2]) for record in records]


def read_all(
    address: str, topic_id: UUID, count: int, partition: int = 0, *, connect: Connect = RawConnection
) -> list[bytes]:
    """The beginnings of all values, at least as many as are said to be there; one offset after the other."""
    values: list[bytes] = []
    with connect(address) as connection:
        while True:
            more = read_values(connection, topic_id, len(values), partition)
            values += more
            if not more and len(values) >= count:
                return values
            assert more, f"{len(values)} records are there, not {count}"
