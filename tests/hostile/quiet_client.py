"""A client that asks for little, and how much the broker computes for others before it answers.

It counts the CPU time of the thread in which the broker serves all clients: on a busy machine a request takes longer,
but does not cost more.
"""

import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.wire.exchange import RawConnection, request_frame

WAIT_CPU_SECONDS_MAX: Final = 0.25
"""For how much of the broker's work one request may wait; a slow machine needs more for the same than others."""
_PING: Final = request_frame(ApiKey.API_VERSIONS, 3, {})


class QuietClient:
    """Asks for the API versions again and again in a thread, while the `with` block runs."""

    def __init__(self, broker: BrokerProcess, connection: RawConnection | None = None) -> None:
        self._connection = connection or RawConnection(broker.address)
        self._thread_times = Path(f"/proc/{broker.program.pid}/task/{broker.program.pid}/schedstat")
        self._is_over = threading.Event()
        self._has_begun = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.waits: list[float] = []
        """CPU seconds of the serving thread during each request."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._has_begun.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._connection.__exit__(None, None, None)

    def check(self, what: str) -> None:
        """No request waited for too much of the broker's work."""
        if self._failure is not None:
            raise AssertionError(f"{what}: the quiet client was disturbed") from self._failure
        longest = max(self.waits)
        print(f"{what}: {len(self.waits)} quiet requests, at worst after {longest * 1e3:.1f} ms of CPU time")
        assert longest < WAIT_CPU_SECONDS_MAX, f"{what}: a quiet request waited for {longest:.3f} s of CPU time"

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                before = self._computed()
                self._connection.send(_PING)
                self._has_begun.set()
                self._connection.receive()
                self.waits.append(self._computed() - before)
        except BaseException as failure:
            self._failure = failure
        finally:
            self._has_begun.set()

    def _computed(self) -> float:
        return int(self._thread_times.read_text().split()[0]) / 1e9
